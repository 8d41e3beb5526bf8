"""attempt.yaml: what the scheduler knows of an attempt. Every fault is one line that names the key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from engine.clock import LAST_YEAR
from engine.lines import printable
from engine.model import Attempt, Workload

MAX_MANIFEST = 16 * 2**20
MAX_NODES = 50_000


class BundleError(ValueError):
    """A bundle cannot be read. The message is one line that names the file and, where there is one, the key."""


def parse_attempt(content: bytes) -> Attempt:
    """attempt.yaml as an Attempt. Raises BundleError with the key.

    Every value is read as it is written: YAML would make a number of the exit code ``1:0`` and of the host ``1e3``.
    """
    document = _mapping_of(content)
    schema = _word(document, "schema") if "schema" in document else "1"
    if schema != "1":
        raise BundleError(f"attempt.yaml: schema: {short(schema)} is not known, only 1")
    workload, attempt = _section(document, "workload"), _section(document, "attempt")
    if _word(workload, "workload.id") is None:
        raise BundleError("attempt.yaml: workload.id: is missing")
    nodes, gpus = _nodes(attempt), _whole(attempt, "gpus_per_node", 0, 1024)
    started, ended = _time(attempt, "started_at"), _time(attempt, "ended_at")
    if started is not None and ended is not None and ended < started:
        raise BundleError("attempt.yaml: attempt.ended_at: is before started_at")
    return Attempt(
        workload=Workload(
            **{key: word for key in Workload.__struct_fields__ if (word := _word(workload, f"workload.{key}"))}
        ),
        number=_whole(attempt, "number", 0, 10**6) or 1,
        state=_word(attempt, "attempt.state") or "",
        exit_code=_word(attempt, "attempt.exit_code"),
        reason=_word(attempt, "attempt.reason"),
        started_at=started,
        ended_at=ended,
        nodes=nodes,
        gpus_per_node=gpus,
    )


def _mapping_of(content: bytes) -> dict[Any, Any]:
    import yaml

    if len(content) > MAX_MANIFEST:
        raise BundleError(f"attempt.yaml: is larger than {MAX_MANIFEST} bytes")
    try:
        document = yaml.load(content, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # nosec B506: only strings
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BundleError(f"attempt.yaml: not valid YAML: {one_line(error)}") from None
    if not isinstance(document, dict):
        raise BundleError("attempt.yaml: must be a mapping")
    return document


def _section(document: dict[Any, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise BundleError(f"attempt.yaml: {key}: {'is missing' if value is None else 'must be a mapping'}")
    return cast(dict[str, Any], value)


def _word(section: dict[str, Any], key: str) -> str | None:
    """A text or a number as it is written; None when it is missing or null."""
    value = section.get(key.rpartition(".")[2])
    if value is None or value in ("", "~", "null", "Null", "NULL"):
        return None
    if not isinstance(value, str):
        raise BundleError(f"attempt.yaml: {key}: must be a text or a number")
    return value


def _nodes(attempt: dict[str, Any]) -> tuple[str, ...]:
    nodes = attempt.get("nodes")
    if nodes in (None, "", "~", "null"):
        return ()
    if not isinstance(nodes, list) or not all(isinstance(node, str) and node.strip() for node in nodes):
        raise BundleError("attempt.yaml: attempt.nodes: must be a list of host names")
    if len(nodes) > MAX_NODES:
        raise BundleError(f"attempt.yaml: attempt.nodes: more than {MAX_NODES}")
    return tuple(dict.fromkeys(printable(node.strip()) for node in nodes))


def _whole(section: dict[str, Any], key: str, low: int, high: int) -> int | None:
    value = _word(section, f"attempt.{key}")
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= 9 and low <= int(value) <= high):
        raise BundleError(f"attempt.yaml: attempt.{key}: must be a whole number up to {high}, not {short(value)}")
    return int(value)


def _time(section: dict[str, Any], key: str) -> float | None:
    value = _word(section, f"attempt.{key}")
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise BundleError(f"attempt.yaml: attempt.{key}: not an ISO 8601 time: {short(value)}") from None
    if not 1970 <= moment.year <= LAST_YEAR:
        raise BundleError(f"attempt.yaml: attempt.{key}: not a year of a job: {short(value)}")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def short(value: str | None) -> str:
    """A text for a message. Never what YAML may hold else: written out, a few aliases of aliases fill the memory."""
    return repr(value)[:80]


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
