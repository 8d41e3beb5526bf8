"""The words that people read for each term of the engine's vocabulary.

A term that has no word here is shown as it is, with its underscores as spaces: a new sub-domain never breaks a page.
"""

from __future__ import annotations

DOMAINS = ("hardware", "network", "storage", "platform", "scheduler", "software", "unattributed")

SUB_DOMAINS = {
    "gpu_memory": "GPU memory",
    "gpu": "GPU",
    "nvlink": "NVLink",
    "nvswitch": "NVSwitch",
    "pcie": "PCIe",
    "cpu": "CPU",
    "host_memory": "Host memory",
    "nic": "NIC",
    "infiniband": "InfiniBand",
    "roce": "RoCE",
    "dns": "DNS",
    "shared_filesystem": "Shared file system",
    "cuda_compat": "CUDA compatibility",
    "user_code": "User code",
    "gpu_oom": "Out of GPU memory",
    "host_oom": "Out of host memory",
    "collective_mismatch": "Collective mismatch",
    "ambiguous": "Several causes fit",
    "none": "",
}

OUTCOMES = {
    "succeeded": "Succeeded",
    "failed": "Failed",
    "hung": "Hung",
    "degraded": "Degraded",
    "timed_out": "Timed out",
    "cancelled": "Cancelled",
    "preempted": "Preempted",
    "unknown": "Unknown outcome",
}

SOURCES = {
    "applog": "Job log",
    "syslog": "Kernel and system log",
    "scheduler": "Scheduler",
    "metric": "Metrics",
    "metrics": "Metrics",
    "flight_recorder": "Flight recorder",
}

COVERAGE = {
    "ok": ("checkc", "Complete"),
    "partial": ("dot", "Partial"),
    "empty": ("minus", "Empty"),
    "missing": ("x", "Missing"),
    "error": ("alert", "Failed"),
}
"""Status of a source: icon and word."""

ACTIONS = {
    "restart": "Restart as it was",
    "restart_excluding": "Restart without",
    "stop": "Don't restart yet",
    "investigate": "Look before you restart",
    "none": "Nothing to do",
}

CLOCKS = {
    "own": "the line's own time stamp",
    "inherited": "time of the line before it",
    "stream": "time known from the stream only",
    "unknown": "time not known",
}


def plain(term: str) -> str:
    """A term of the vocabulary as a word: `time_limit` -> `Time limit`."""
    return term.replace("_", " ").strip().capitalize()


def domain(term: str) -> str:
    return plain(term)


def sub_domain(term: str) -> str:
    return SUB_DOMAINS.get(term, plain(term))


def outcome(term: str) -> str:
    return OUTCOMES.get(term, plain(term))


def source(term: str) -> str:
    return SOURCES.get(term, plain(term))


def action(term: str, nodes: list[str] | tuple[str, ...] = ()) -> str:
    """What to do next, as a heading. Nodes beyond the third are counted; all of them stand in the copyable option."""
    if term == "restart_excluding" and nodes:
        shown = ", ".join(nodes[:3])
        return f"Restart without {shown}" + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    return ACTIONS.get(term, plain(term))


def count(number: int, one: str, many: str = "") -> str:
    """`count(1, "line")` -> `1 line`; `count(2800, "line")` -> `2,800 lines`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
