"""Secrets are hidden before a stream is stored: each byte of a secret becomes an asterisk.

Lengths and line ends stay, so byte offsets and line numbers of the original hold. Two steps: one linear pass over a
piece finds the few lines that could hold a secret (hyperscan), then bounded regexes look at those lines alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import hyperscan

MIN_NAME = 3
SYSTEM_NAMES = frozenset({
    "root", "admin", "administrator", "daemon", "nobody", "user", "users", "ubuntu", "debian", "centos", "rocky",
    "ec2-user", "slurm", "munge", "mpi", "nvidia", "cuda", "docker", "kube", "system", "service", "job", "jobs",
    "batch", "train", "training", "test", "host", "node", "rank", "error", "none", "null",
})  # fmt: skip
"""Accounts that name nobody, and words that logs are full of."""
_SECRET_WORD = rb"(?:pass(?:word|wd|phrase)?|pwd|secret|credentials?)"
_KEY_WORD = rb"(?:token|secret|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|auth)"
_QUOTE = rb"(?:\\?[\"'])?"

RULES: tuple[tuple[bytes, bytes], ...] = (
    # trigger for the pass over everything, regex whose groups are hidden
    # https://user:password@host
    (rb"://[^\s/@\"']{0,256}:[^\s/@\"']{1,256}@", rb"://[^\s/:@\"']{0,256}:([^\s/@\"']{1,256})@"),
    # Authorization: Bearer ..., "authorization": "Basic ..."
    (
        rb"authorization",
        rb"(?i)authorization" + _QUOTE + rb"\s{0,4}[:=]\s{0,4}" + _QUOTE
        + rb"(?:(?:bearer|basic|token|digest|negotiate|aws4-hmac-sha256)\s{1,4})?([^\s\"'\\]{6,8192})",
    ),
    (rb"\b(?:bearer|basic)\s+[A-Za-z0-9._~+/-]{16}",
     rb"(?i)\b(?:bearer|basic)\s{1,4}([A-Za-z0-9._~+/-]{16,8192}={0,2})"),
    # password=..., "passwd": "...", --password ...
    (
        rb"(?:pass|pwd|secret|credential)[a-z]*[\\\"']{0,2}\s{0,3}[:=]|--?pass[a-z]*\s",
        rb"(?i)(?:(?<![a-z])|(?<=[_-]))" + _SECRET_WORD + _QUOTE + rb"\s{0,3}[:=]\s{0,3}"
        + _QUOTE + rb"([^\s\"'\\,;&]{4,512})",
    ),
    (rb"--?pass[a-z]*\s", rb"(?i)--?pass(?:word|wd|phrase)\s{1,4}([^\s\"'-][^\s\"']{3,512})"),
    # HF_TOKEN=..., api_key: "...": only what looks made by a machine, for pad_token=<pad> or max_tokens=4096 are
    # evidence
    (
        rb"(?:token|secret|key|auth)[\\\"']{0,2}\s{0,3}[:=]",
        rb"(?i)" + _KEY_WORD + _QUOTE + rb"\s{0,3}[:=]\s{0,3}" + _QUOTE
        + rb"((?=[^\s\"'\\,;&]{0,60}[0-9])(?=[^\s\"'\\,;&]{0,60}[a-z])[A-Za-z0-9_.~+=-][A-Za-z0-9_.~+/=-]{15,4096})",
    ),
    # signed addresses
    (
        rb"(?:x-amz-(?:signature|security-token|credential)|[?&](?:sig|signature|access_token|api_key|token))=",
        rb"(?i)(?:x-amz-(?:signature|security-token|credential)|[?&](?:sig|signature|access_token|api_key|token))=([^\s&\"'\\]{6,8192})",
    ),
    # keys that tell what they are by their shape
    (rb"(?:AKIA|ASIA|AROA)[0-9A-Z]{16}", rb"(?<![0-9A-Za-z])((?:AKIA|ASIA|AROA)[0-9A-Z]{16})(?![0-9A-Za-z])"),
    (rb"hf_[A-Za-z0-9]{20}", rb"(?<![0-9A-Za-z])(hf_[A-Za-z0-9]{20,100})"),
    (rb"(?:gh[opsur]|github_pat)_[A-Za-z0-9_]{20}",
     rb"(?<![0-9A-Za-z])((?:gh[opsur]|github_pat)_[A-Za-z0-9_]{20,255})"),
    (rb"(?:glpat|nvapi|pypi|sk|xox[abeprs]|npm|dckr_pat)[_-][A-Za-z0-9_-]{20}",
     rb"(?<![0-9A-Za-z])((?:glpat|nvapi|pypi|sk|xox[abeprs]|npm|dckr_pat)[_-](?=[A-Za-z0-9_-]{0,40}[0-9])[A-Za-z0-9_-]{20,300})"),
    (rb"AIza[0-9A-Za-z_-]{35}", rb"(?<![0-9A-Za-z])(AIza[0-9A-Za-z_-]{35})"),
    (rb"eyJ[A-Za-z0-9_-]{10,}\.",
     rb"(?<![0-9A-Za-z])(eyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,8192}"
     rb"(?:\.[A-Za-z0-9_-]{0,4096})?)"),
    (rb"(?:wandb|WANDB)[^\n]{0,60}[0-9a-f]{40}", rb"(?i)wandb.{0,60}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])"),
)  # fmt: skip
_CASELESS = frozenset({1, 2, 3, 4, 5, 6})
_REGEXES = tuple(re.compile(regex) for _, regex in RULES)
_PEM = re.compile(rb"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----")
_PEM_TRIGGER = rb"-----(?:BEGIN|END) [A-Z0-9 ]{0,60}PRIVATE KEY-----"


class SecretMask:
    """Hides secrets in one stream, piece after piece in order; pieces end at line ends where they can.

    Holds state: a private key spans lines. `masked` counts what was hidden.
    """

    def __init__(self) -> None:
        self.masked = 0
        self._in_key = False

    def __call__(self, piece: bytes) -> bytes:
        suspects = _suspect_lines(piece)
        if not suspects and not self._in_key:
            return piece
        hidden = bytearray(piece)
        marks: list[tuple[int, int]] = []
        for start, end in suspects:
            marks += self._in_line(piece, start, end)
        for start, end in _merged(marks):
            hidden[start:end] = b"*" * (end - start)
            self.masked += 1
        self._hide_keys(hidden)
        return bytes(hidden)

    def _in_line(self, piece: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        for regex in _REGEXES:
            for found in regex.finditer(piece, start, end):
                if piece[found.start(1) : found.end(1)].strip(b"*"):
                    yield found.span(1)

    def _hide_keys(self, hidden: bytearray) -> None:
        """What stands between the first and the last line of a private key."""
        at = 0
        for found in [*_PEM.finditer(bytes(hidden)), None]:
            if self._in_key:
                stop = len(hidden) if found is None else found.start()
                hidden[at:stop] = re.sub(rb"[^\s]", b"*", bytes(hidden[at:stop]))
            if found is not None:
                begins = found[1] == b"BEGIN"
                self.masked += begins and not self._in_key
                self._in_key, at = begins, found.end()


class NameMask:
    """Hides names of people in pieces of a stream, wherever they stand as a word: in paths, in prompts. Lengths stay.

    Names that are words of every log (`root`), or too short to be told from one, are left alone.
    """

    def __init__(self, names: Iterable[str]) -> None:
        known = {name for name in names if len(name) >= MIN_NAME and name.lower() not in SYSTEM_NAMES}
        forms = sorted((re.escape(name.encode("utf-8", "surrogateescape")) for name in known), key=len, reverse=True)
        self._names = (
            re.compile(rb"(?i)(?<![A-Za-z0-9])(?:" + b"|".join(forms) + rb")(?![A-Za-z0-9])") if forms else None
        )

    @property
    def hides(self) -> bool:
        """Whether there is a name to hide."""
        return self._names is not None

    def __call__(self, piece: bytes) -> bytes:
        return self._names.sub(lambda found: b"*" * len(found[0]), piece) if self._names else piece


def mask_text(text: str) -> str:
    """A short text (a name, a line for a notification) with its secrets hidden."""
    return SecretMask()(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def _suspect_lines(piece: bytes) -> list[tuple[int, int]]:
    """Spans of the lines that could hold a secret, in order."""
    ends: list[int] = []

    def seen(number: int, start: int, end: int, flags: int, context: object) -> None:
        ends.append(end)

    database, scratch = _triggers()
    database.scan(piece, match_event_handler=seen, scratch=scratch)
    spans: list[tuple[int, int]] = []
    for end in sorted(ends):
        if spans and end <= spans[-1][1]:
            continue
        start = piece.rfind(b"\n", 0, end - 1) + 1
        stop = piece.find(b"\n", end - 1)
        spans.append((start, len(piece) if stop < 0 else stop))
    return spans


@cache
def _triggers() -> tuple[hyperscan.Database, hyperscan.Scratch]:
    patterns = [trigger for trigger, _ in RULES] + [_PEM_TRIGGER]
    flags = [hyperscan.HS_FLAG_CASELESS if number in _CASELESS else 0 for number in range(len(patterns))]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=patterns, ids=list(range(len(patterns))), elements=len(patterns), flags=flags)
    scratch = hyperscan.Scratch(database)
    database.scratch = scratch
    return database, scratch


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
