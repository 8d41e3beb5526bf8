"""The one kind of error that the supervisor shows to a person."""

from __future__ import annotations


class DemoError(Exception):
    """What is wrong and what to do about it, in one line; `tail` holds the end of a log where that helps."""

    def __init__(self, message: str, tail: str = "") -> None:
        super().__init__(message)
        self.tail = tail
