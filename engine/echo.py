"""Lines of a job's log that only repeat an error's words: code, help, advice, a model's text, what was dealt with."""

from __future__ import annotations

import re

_CODE = re.compile(
    r"\s*(?:#+ |//|(?:raise|except|assert|elif) \w|(?:if|while|with|for|try|else)\b.*:\s*$"
    r"|return (?:f?[\"']|None\b|self\b|False\b|True\b)"
    r"|(?:self\.)?(?:logger|logging|log|warnings)\.\w+\(|print\()"
)
_HELP = re.compile(r"\s*-{1,2}[A-Za-z][\w-]*(?:[ =][A-Z_<\[{]\S*)?(?:, --\S+)*\s{2,}\S")
_ADVICE = re.compile(
    r"(?i)\W*(?:(?:if|when) (?:you|this error|the error|it|there)\b|(?:note|hint|tip|usage|example|e\.g\.) ?:)"
)
_MODEL = re.compile(
    r"(?i)\s*(?:\[(?:prompt|response|completion|generation|ground_truth|question|answer|sample|input|output)\]"
    r"|(?:generated|sampled|decoded|model) (?:text|output|response|sample)s?\b ?[:=]"
    r"|[\"']?(?:prompt|completion|response|question|answer)[\"']? ?[:=])"
)
_HANDLED = re.compile(
    r"(?i)(?<!not )(?<!without )(?<!stop )(?<!stopped )\bretrying\b(?! \(Retry\(total=0)"
    r"|\bwill (?:be )?retr(?:y|ied)\b|\bfalling back\b|\bfell back\b|\bcaught and\b|\bskipping\b|\bignor(?:ed|ing)\b"
    r"|(?<!be )(?<!not )\brecovered\b|\b(?:previous|last|earlier|prior) (?:attempt|run|job|restart|incarnation)\b"
)


def is_echo(text: str) -> bool:
    """Does the line, without its envelope, only quote an error, or say that it was dealt with?"""
    return bool(
        _CODE.match(text) or _HELP.match(text) or _ADVICE.match(text) or _MODEL.match(text) or _HANDLED.search(text)
    )
