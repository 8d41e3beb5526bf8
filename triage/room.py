"""No room to keep something: a fault of this machine, not of whoever sent it. What is told to wait comes again."""

from __future__ import annotations

import errno

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
RETRY_SECONDS = 15
IN_WORDS = "There is no room to keep it at the moment. Nothing of it was kept; it can be sent again."


def has_no_room(error: BaseException) -> bool:
    """Whether a disk is full, a quota used up, or a file system read-only."""
    return isinstance(error, OSError) and error.errno in _ERRORS
