"""The part of docs/performance.md about the whole path, from docs/throughput.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
KEPT, BURST = DOCS / "throughput.json", DOCS / "overload.json"
GOAL = 17.0
"""Typical attempts a second on two cores: ten million a week."""
_KINDS = ("web", "worker", "postgres", "valkey", "beat", "clients")
_ABOUT = """\
# How many attempts a second go the whole way

API or a watched folder -> Celery -> engine -> Postgres -> page: `python -m tests.bench.throughput`, part of
`make bench`, starts web server, one worker with one or two processes, beat, PostgreSQL and Valkey, sends failed
attempts (a GPU that falls off the bus, a Python exception, a GPU out of memory; each with bytes of its own) from eight
clients, and waits for the last diagnosis. Every diagnosis is checked. In parts, an attempt is made known, each stream
sent by a call of its own, a diagnosis asked for; as a bundle, its archive is sent by one call; by folder, its archive
is put there whole.

`CPU ms` is what all processes but the clients took of a processor for one attempt, beside what they take when only
pages are asked for; so a busy machine changes it least. `possible` is what it leaves on two processors of which nothing
else takes anything: 2000 / CPU ms. `measured` is by wall time on the machine as it was, with the clients on it. 0 is
what is not more than without any attempt.
"""


_MOVED = """\
What moved it, for a typical attempt in parts. The first three were measured together, by the CPU time that each step
took in one process: 565 ms before, 464 after, on a machine with a load of 10 to 13.

- When the first and last lines of a stream were written is told by a dozen stamps at either end, not by 400 lines:
  that took longer than to mask, hash and compress the stream. Collecting takes 82 ms instead of 138.
- A part that is received takes 12 queries instead of 17, and the attempt's diagnosis is not read to know that the
  attempt is there; collecting takes 15 instead of 61, for its streams are written by one.
- Taking an attempt and following it to its end takes 17 queries instead of 30.
- One worker collects and diagnoses an attempt and takes the next: at most one message for each instead of three.
- The attempt's row, which has two dozen indexes, is written six times on its way instead of sixteen.
- zstd's level 1 instead of 3: 700 MB/s instead of 480, and blobs of 361 KB instead of 435.

What is left: of the time of a worker that takes small attempts the engine has two thirds, by samples (for 100 KB it
takes 57 ms, for 5 MB 107, measured alone on the same machine), then come the ORM and compressing. The web server takes
about 20 ms for any call, most of it for Django and its making of SQL, so that a bundle in one call is cheaper than
parts in ten. Nothing was tried that did not help; neither statements that PostgreSQL keeps prepared nor longer slices
of a worker were tried.
"""


def written() -> str:
    """Nothing of what was not measured yet."""
    parts = [said(json.loads(kept.read_text())) for kept, said in ((KEPT, markdown), (BURST, burst)) if kept.exists()]
    return "\n".join(parts)


def markdown(result: dict[str, Any]) -> str:
    machine, runs = result["machine"], result["runs"]
    sizes = {row["size"]: row["sent_bytes"] / 1e6 for row in runs}
    said = ", ".join(f"{name} {megabytes:.1f} MB" for name, megabytes in sizes.items())
    rows = [
        _ABOUT,
        f"{machine['cpus']} x {machine['cpu']}, Python {machine['python']}; a loop of four million additions took "
        f"{machine['spin_s']} s. Sizes: {said}.{' ' + result['note'] if result.get('note') else ''}",
        "",
        "| attempt | way in | worker processes | measured, a second | CPU ms each | possible on 2 processors | "
        "pages meanwhile, half / 95% / longest ms | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in runs:
        pages = " / ".join(str(row["pages_ms"].get(part, "-")) for part in ("half", "95%", "longest"))
        rows.append(
            f"| {row['size']} | {row['way']} | {row['workers']} | {row['per_second']:.2f} | "
            f"{row['cpu_ms_in_all']:.0f} | {2000 / row['cpu_ms_in_all']:.1f} | {pages} | {row['load']} |"
        )
    best = max((2000 / row["cpu_ms_in_all"] for row in runs if row["size"] == "typical"), default=0.0)
    rows += [
        "",
        f"The goal is {GOAL:.0f} typical attempts a second on two cores; by CPU time the best way gives {best:.1f}.",
        "",
        "What takes the time, CPU ms of one attempt by kind of process, and bytes that stay of it:",
        "",
        f"| attempt | way in | worker processes | {' | '.join(_KINDS)} | blobs | received parts (kept for a day) | "
        "database |",
        f"|---|---|---|{'---|' * (len(_KINDS) + 3)}",
    ]
    for row in runs:
        spent = " | ".join(f"{row['cpu_ms'].get(kind, 0):.0f}" for kind in _KINDS)
        stored = row["stored_bytes"]
        rows.append(
            f"| {row['size']} | {row['way']} | {row['workers']} | {spent} | {stored['blobs']:,} | "
            f"{stored['observed'] + stored['spool']:,} | {stored['database']:,} |"
        )
    return "\n".join([*rows, "", _MOVED])


def burst(result: dict[str, Any]) -> str:
    """The part about a night when the fabric fails."""
    found, machine = result["burst"], result["machine"]
    waited = {name: found["waited_s"][name] for name in sorted(found["waited_s"])}
    pages = " / ".join(str(found["pages_ms"].get(part, "-")) for part in ("half", "95%", "longest"))
    memory = ", ".join(f"{kind} {size} MB" for kind, size in found["most_memory_mb"].items())
    rows = [
        "# A night when the fabric fails",
        "",
        f"`python -m tests.bench.overload --attempts {found['attempts']} --seconds {found['within_seconds']:g}`: "
        f"{found['attempts']:,} small attempts within {found['within_seconds']:g} s as bundles, one in fifty of two "
        f"quiet clusters, all others of one; {result['workers']} worker processes. Measured on {machine['cpus']} x "
        f"{machine['cpu']}, load {found['load']}.{' ' + result['note'] if result.get('note') else ''}",
        "",
        f"- All were taken after {found['taken_after']:.0f} s. {found['told_to_come_back']:,} calls were told to come "
        f"back (503 with Retry-After), {found['cut']:,} were cut; all of them were sent again.",
        f"- {found['waiting_when_all_were_taken']:,} waited for their diagnosis then; all were diagnosed after "
        f"{found['diagnosed_after']:.0f} s, {found['wrong']} of them wrongly, twice or not at all.",
        *(
            f"- Of `{name}`, half were diagnosed within {wait['half']} s of being taken, the last within "
            f"{wait['longest']} s."
            for name, wait in waited.items()
            if wait
        ),
        f"- Pages meanwhile, half / 95% / longest: {pages} ms.",
        f"- Most memory of a process, beside what it shares: {memory}.",
    ]
    return "\n".join(rows) + "\n"
