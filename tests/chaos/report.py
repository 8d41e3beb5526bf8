"""`python -m tests.chaos.report docs/reliability.json`: the figures of a run as docs/reliability.md."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.report", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="+", help="of one run, or of several, each told by itself")
    parser.add_argument("--to", type=Path, default=Path("docs/reliability.md"))
    options = parser.parse_args()
    options.to.write_text(page(*(json.loads(path.read_text()) for path in options.figures)))


def page(*runs: dict[str, Any]) -> str:
    """The document: what is promised, what was done, what was counted."""
    text = (HERE / "reliability.md").read_text()
    return text.replace("{figures}", "\n\n".join("\n".join([*_figures(run), "", *_table(run)]) for run in runs))


def _figures(run: dict[str, Any]) -> list[str]:
    machine, rounds = run["machine"], run["rounds"]
    wrong = [(done["round"], line) for done in rounds for line in done["wrong"]]
    attempts, diagnoses, again = (_sum(rounds, what) for what in ("attempts", "diagnoses", "calls sent again"))
    minutes = run["seconds"] // 60
    last = rounds[-1]["counted"] if rounds else {}
    version = machine.get("version")
    verified = [last.get(f"{what} verified", 0) for what in ("streams", "lines of evidence")]
    lines = [
        f"{f'Of {version}: ' if version else ''}{len(rounds)} rounds in {minutes} minutes: {attempts:,} attempts "
        f"taken, {diagnoses:,} diagnoses, {again:,} calls that clients had to send again; {verified[0]:,} streams and "
        f"{verified[1]:,} lines of evidence held against their hashes at the end. **{len(wrong) or 'Nothing'} "
        f"{'things were' if len(wrong) > 1 else 'was'} lost, doubled, half written or damaged.**",
        "",
        f"{machine['at']}, {machine['cores']} cores (load {machine['load'][0]:.1f}, shared with other work), "
        f"{machine['system']}, Python {machine['python']}; seed {run['options']['seed']}.",
    ]
    if wrong:
        lines += ["", "What was wrong:", "", *(f"- round {number}: {line}" for number, line in wrong)]
    return lines


def _table(run: dict[str, Any]) -> list[str]:
    by_fault: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for done in run["rounds"]:
        by_fault[done["fault"]].append(done)
    lines = [
        "| what was done | rounds | attempts | diagnoses | calls sent again | longest until quiet | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for fault, done in by_fault.items():
        counts = [_sum(done, what) for what in ("attempts", "diagnoses", "calls sent again")]
        longest, wrong = max(one["seconds"] for one in done), sum(len(one["wrong"]) for one in done)
        lines.append(f"| {fault} | {len(done)} | {' | '.join(map(str, counts))} | {longest:.0f} s | {wrong} |")
    lines += [f"| {fault} | skipped: {why} | | | | | |" for fault, why in run["skipped"].items()]
    return lines


def _sum(rounds: list[dict[str, Any]], what: str) -> int:
    return sum(int(done["counted"].get(what, 0)) for done in rounds)


if __name__ == "__main__":
    main()
