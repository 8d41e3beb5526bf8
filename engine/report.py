"""A diagnosis as text for a terminal, as Markdown, as one line of JSON."""

from __future__ import annotations

import textwrap
from collections import Counter

import msgspec

from engine.model import Diagnosis


def render(diagnosis: Diagnosis, form: str) -> str:
    """`form`: text | markdown | json."""
    return {"text": as_text, "markdown": as_markdown, "json": as_json}[form](diagnosis)


def as_json(diagnosis: Diagnosis) -> str:
    """One line, keys sorted."""
    return msgspec.json.encode(diagnosis, order="sorted").decode()


def as_text(diagnosis: Diagnosis) -> str:
    d = diagnosis
    out = [f"{d.title}", f"{d.outcome}, {d.domain}/{d.sub_domain}"]
    if d.root_cause and (d.root_cause.nodes or d.root_cause.devices):
        out.append(f"nodes: {', '.join(d.root_cause.nodes) or '-'}  devices: {', '.join(d.root_cause.devices) or '-'}")
    out += ["", "Why"]
    out += [textwrap.fill(sentence, 110, initial_indent="  ", subsequent_indent="  ") for sentence in d.reasoning]
    decisive = set(d.root_cause.evidence) if d.root_cause else set()
    shown = [e for e in d.evidence if e.id in decisive] or list(d.evidence[:3])
    out += ["", "Evidence"]
    out += [f"  {e.id:4} {e.stream}:{e.line}  {e.text[:160]}" for e in shown[:8]]
    if d.symptoms:
        out += ["", "Symptoms"]
        out += [
            f"  {s.count:6} x {s.title} ({s.rule})" + (f" on {', '.join(s.nodes[:4])}" if s.nodes else "")
            for s in d.symptoms[:12]
        ]
    rivals = [f"{title}{times}: {why}" for title, times, why in _rivals(d) if why]
    if rivals:
        out += ["", "Why not something else"]
        out += [textwrap.fill(said, 110, initial_indent="  ", subsequent_indent="    ") for said in rivals[:8]]
    gaps = [c for c in d.coverage if c.status != "ok" and c.note]
    if gaps:
        out += ["", "Missing"]
        out += [f"  {c.source}: {c.note}" for c in gaps]
    out += [
        "",
        f"Do next: {d.recommendation.action.replace('_', ' ')} {' '.join(d.recommendation.exclude_nodes)}".rstrip(),
    ]
    if d.recommendation.text:
        out.append(textwrap.fill(d.recommendation.text, 110, initial_indent="  ", subsequent_indent="  "))
    return "\n".join(out) + "\n"


def as_markdown(diagnosis: Diagnosis) -> str:
    d = diagnosis
    out = [f"# {d.title}", "", f"**{d.outcome}**, {d.domain} / {d.sub_domain}", ""]
    if d.recommendation.text:
        out += [f"**Do next:** {d.recommendation.text}", ""]
    out += ["## Why", ""]
    out += [f"{number}. {sentence}" for number, sentence in enumerate(d.reasoning, 1)]
    decisive = set(d.root_cause.evidence) if d.root_cause else set()
    shown = [e for e in d.evidence if e.id in decisive] or list(d.evidence[:3])
    out += ["", "## Evidence", ""]
    for e in shown[:8]:
        fence = "~~~~" if "```" in e.text else "```"
        out += [f"{e.id}: `{e.stream}` line {e.line}, {e.at or 'no time'}", "", fence, e.text, fence, ""]
    if d.symptoms:
        out += ["## Symptoms", "", "| count | what | where |", "|---:|---|---|"]
        out += [f"| {s.count} | {_cell(s.title)} | {_cell(', '.join(s.nodes))} |" for s in d.symptoms]
    if d.candidates:
        out += ["", "## Why not something else", ""]
        out += [f"- **{title}**{times}: {why}" for title, times, why in _rivals(d)]
    out += ["", "## What was read", "", "| source | status | streams | lines | note |", "|---|---|---:|---:|---|"]
    out += [f"| {c.source} | {c.status} | {c.streams} | {c.lines} | {_cell(c.note)} |" for c in d.coverage]
    return "\n".join(out) + "\n"


def _rivals(d: Diagnosis) -> list[tuple[str, str, str]]:
    """Each rival's title, how often one stands for the same reason, and that reason."""
    told = Counter((c.title, c.not_root_because or c.undecided_because or "") for c in d.candidates)
    return [(title, f" ({times} places)" if times > 1 else "", why) for (title, why), times in told.items()]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
