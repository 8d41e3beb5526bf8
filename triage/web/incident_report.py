"""The report of an incident and the short summaries for a chat, as Markdown: drafts out of what is known."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django.urls import reverse

from triage import times, words
from triage.models import Attempt, EventKind, Incident, VerdictStatus
from triage.selectors.evidence import Story
from triage.selectors.incidents import IncidentDetail, incident_detail, ordered_parts
from triage.selectors.threads import Entry, Group, incident_thread
from triage.selectors.verdicts import said
from triage.web.markdown import chat, code, plain

MAX_ENTRIES = 1_000
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)


def incident_report(incident: Incident, site: str) -> str:
    """The whole report. `site` is the address of this installation, `https://faultline.example.org/`."""
    detail = incident_detail(incident.pk)
    parts = [
        f"# {incident.name}: {plain(incident.title)}",
        _facts(detail, site),
        "## Same failure, because",
        "\n".join(f"- {plain(words.plain(key))}: {code(value)}" for key, value in ordered_parts(incident))
        or "Not known.",
        "## What it hit",
        _impact(detail),
        "## Proof",
        _proof(detail, site),
        "## What happened",
        _timeline(incident, site),
        "## Why it could happen",
        "*To be written.*",
        "## What we will do about it",
        "- [ ] *To be written.*",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(detail: IncidentDetail, site: str) -> str:
    incident = detail.incident
    owner = incident.assignee
    rows = [
        ("Status", plain(incident.get_status_display())),
        ("Severity", str(incident.severity or "not said")),
        ("Assignee", plain(owner.get_full_name() or owner.get_username()) if owner else "nobody"),
        ("Cause", plain(f"{words.domain(incident.domain)}, {words.sub_domain(incident.sub_domain)}")),
        ("Attempts", f"{incident.attempts_count:,}"),
        ("GPU-hours lost", f"{incident.gpu_hours:,.1f}"),
        ("First seen", _moment(incident.first_at)),
        ("Last seen", _moment(incident.last_at)),
        ("Page", f"<{site.rstrip('/')}{reverse('incident', args=[incident.pk])}>"),
    ]
    rows += [("Ticket", f"[{plain(ticket.label)}](<{ticket.url.replace('>', '%3E')}>)") for ticket in detail.tickets]
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


def _impact(detail: IncidentDetail) -> str:
    lines = [
        f"- Workload {plain(share.name or share.workload_id)} ({plain(share.workload_id)}): "
        f"{words.count(share.times, 'attempt')}"
        for share in detail.workloads
    ]
    if detail.workload_count > len(detail.workloads):
        lines.append(f"- and {words.count(detail.workload_count - len(detail.workloads), 'workload')} more")
    lines += [f"- Node {code(share.node)}: blamed {words.count(share.times, 'time')}" for share in detail.nodes]
    if detail.node_count > len(detail.nodes):
        lines.append(f"- and {words.count(detail.node_count - len(detail.nodes), 'node')} more")
    return "\n".join(lines)


def _proof(detail: IncidentDetail, site: str) -> str:
    """The decisive line of the newest attempt, where there is one."""
    for attempt in detail.attempts[:5]:
        if attempt.diagnosis is None:
            continue
        root = attempt.diagnosis.root_cause
        evidence = attempt.diagnosis.evidence
        line = next((evidence[ref] for ref in (root or {}).get("evidence", ()) if ref in evidence), None)
        if root is None or line is None:
            continue
        where = f"{site.rstrip('/')}{reverse('evidence', args=[attempt.pk, line['id']])}#L{line['line']}"
        return (
            f"{plain(_named(attempt))}, {code(line['stream'])}, line {line['line']} (<{where}>):\n\n"
            f"> {code(line['text'], 800)}\n\n{plain(root.get('why', ''), 1000)}"
        )
    return "No diagnosis of it names a line."


def _timeline(incident: Incident, site: str) -> str:
    groups = (Group.COMMENTS, Group.DECISIONS, Group.ATTEMPTS)
    thread = incident_thread(incident.pk, groups, limit=MAX_ENTRIES)
    lines = [f"- {_moment(entry.event.happened_at)}: {_sentence(entry)}" for entry in reversed(thread.entries)]
    if thread.more:
        lines.insert(0, "- Older entries are on the page alone.")
    return "\n".join(lines) or "Nothing yet."


def _sentence(entry: Entry) -> str:
    event, told = entry.event, entry.event.payload
    who = plain(event.actor.get_full_name() or event.actor.get_username()) if event.actor else "Faultline"
    attempt = plain(_named(event.attempt)) if event.attempt is not None else ""
    if entry.comment is not None:
        if entry.comment.deleted_at:
            return f"{who} wrote a comment that was deleted"
        quotes = "".join(f"\n  > {code(line)}" for quote in entry.comment.quotes for line in quote["lines"])
        text = _HEADING.sub(r"**\1**", entry.comment.text).replace("\n", "\n  > ")
        return f"{who} wrote{f' on {attempt}' if attempt else ''}:{quotes}\n  > {text}".rstrip("> \n")
    sentences = {
        EventKind.INCIDENT_OPENED: f"opened by {attempt}",
        EventKind.INCIDENT_JOINED: f"{attempt} failed the same way",
        EventKind.INCIDENT_LEFT: f"{attempt} left: {plain(told.get('why', ''))}",
        EventKind.INCIDENT_REGRESSED: f"regressed: {attempt} failed the same way",
        EventKind.INCIDENT_STATUS: f"{who} set it to {plain(told.get('after', ''))}"
        + (f": {plain(told['note'])}" if told.get("note") else ""),
        EventKind.INCIDENT_ASSIGNED: f"{who} gave it to {plain(told.get('name') or 'nobody')}",
        EventKind.INCIDENT_SEVERITY: f"{who} set severity {told.get('after') or 'to not said'}",
        EventKind.INCIDENT_RENAMED: f"{who} changed the title to {plain(told.get('after', ''))}",
        EventKind.INCIDENT_MERGED: f"{who} merged INC-{told.get('source')} into INC-{told.get('target')}",
        EventKind.INCIDENT_UNMERGED: f"{who} took INC-{told.get('source')} out again",
        EventKind.INCIDENT_SPLIT: f"{who} split {words.count(len(told.get('attempts', ())), 'attempt')} off into "
        f"INC-{told.get('target')}",
        EventKind.INCIDENT_ADDED: f"{who} added {words.count(len(told.get('attempts', ())), 'attempt')} to "
        f"INC-{told.get('target')}",
        EventKind.INCIDENT_PUT_BACK: f"{who} put {words.count(len(told.get('attempts', ())), 'attempt')} of "
        f"INC-{told.get('target')} back",
        EventKind.INCIDENT_MAY_BE_SAME: f"{who} took back that INC-{told.get('other')} is not the same",
        EventKind.INCIDENT_NOT_SAME: f"{who} said that INC-{told.get('other')} is not the same",
        EventKind.VERDICT_CONFIRMED: f"{who} confirmed the diagnosis of {attempt}",
        EventKind.VERDICT_CORRECTED: f"{who} corrected the diagnosis of {attempt}: {plain(told.get('title', ''))}. "
        f"{plain(told.get('reason', ''))}",
        EventKind.VERDICT_KEPT: f"{who} kept the earlier word on {attempt}",
        EventKind.VERDICT_WITHDRAWN: f"{who} took back a verdict on {attempt}",
        EventKind.VERDICT_DISAGREES: f"the engine now disagrees on {attempt}: {plain(told.get('title', ''))}",
        EventKind.VERDICT_AGREES: f"the engine agrees again on {attempt}",
        EventKind.TICKET_LINKED: f"{who} linked {plain(told.get('label', ''))}",
        EventKind.TICKET_UNLINKED: f"{who} took the link to {plain(told.get('label', ''))} away",
    }
    return sentences.get(EventKind(event.kind), plain(event.kind)) if event.kind in EventKind.values else event.kind


# --- for a chat -------------------------------------------------------------------------------------------------------


def attempt_summary(attempt: Attempt, story: Story, address: str) -> str:
    """What to paste into a chat about one attempt."""
    now, contract = said(attempt), story.contract
    status = VerdictStatus(attempt.verdict_status).label.lower()
    lines = [f"**{chat(now.title)}** ({_cause(now.domain, now.sub_domain)}; {status})"]
    ended = f", ended {_moment(attempt.ended_at)}" if attempt.ended_at else ""
    hours = f", {attempt.gpu_hours:,.1f} GPU-hours lost" if attempt.gpu_hours is not None else ""
    lines.append(f"{chat(_named(attempt))}: {words.outcome(contract['outcome']).lower()}{ended}{hours}")
    if not now.is_correction:
        advice = contract["recommendation"]
        lines.append(f"Do next: {chat(words.action(advice['action'], advice['exclude_nodes']))}")
    elif now.verdict is not None:
        lines.append(f"Corrected: {chat(now.verdict.reason, 300)}")
    if story.decisive is not None and not now.is_correction:
        line = story.decisive
        lines.append(f"Proof, {code(line.stream)} line {line.line}: {code(line.text, 300)}")
    return "\n".join([*lines, address]) + "\n"


def incident_summary(incident: Incident, detail: IncidentDetail, address: str) -> str:
    """What to paste into a chat about an incident."""
    nodes = ", ".join(code(share.node) for share in detail.nodes[:5]) or "no node blamed"
    state = incident.get_status_display().lower()
    severity = f", severity {incident.severity}" if incident.severity else ""
    lines = [
        f"**{incident.name}: {chat(incident.title)}** "
        f"({_cause(incident.domain, incident.sub_domain)}; {state}{severity})",
        f"{words.count(incident.attempts_count, 'attempt')} of {words.count(detail.workload_count, 'workload')}, "
        f"{incident.gpu_hours:,.1f} GPU-hours lost, on {nodes}",
        f"First {_moment(incident.first_at)}, last {_moment(incident.last_at)}",
    ]
    return "\n".join([*lines, address]) + "\n"


def _cause(domain: str, sub_domain: str) -> str:
    return ", ".join(filter(None, (words.domain(domain), words.sub_domain(sub_domain))))


def _named(attempt: Attempt) -> str:
    workload = attempt.workload
    return f"{workload.name} {workload.workload_id}".strip() + f", attempt {attempt.number}"


def _moment(at: datetime | None) -> str:
    moment = times.parse(at)
    return f"{times.day(moment, zone=UTC)} {moment:%H:%M} UTC" if moment else "not known"
