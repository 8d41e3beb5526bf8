"""The blob store: raw streams as zstd frames with an index, so that a line deep in a 1 GB log opens at once.

A blob is one file that any zstd tool can unpack:

    frame, frame, ...      each holds about 1 MB of the stream, cut after a line end where there is one
    a skippable frame      the index (see `index.py`), found from the end of the file

Blobs are named by the SHA-256 of the bytes they hold: what is stored twice is kept once, and a repeated write changes
nothing.
"""

from triage.blobs.reader import BlobError, BlobReader, RawLine
from triage.blobs.store import BlobStore, StoredBlob
from triage.blobs.writer import Mask, write_blob

__all__ = ["BlobError", "BlobReader", "BlobStore", "Mask", "RawLine", "StoredBlob", "write_blob"]
