"""Every page that the URL configuration has, at an address where it has something to show.

A page is found by asking each route for itself, so that a new one is checked without being written down anywhere; what
its address takes is explained in tests/access/routes.py.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from tests.access.routes import Route, all_routes
from triage.models import Attempt, Notification
from triage.services.channels import RouteFields, save_channel, save_route
from triage.services.clusters import save_cluster, save_source
from triage.services.comments import add_comment, edit_comment
from triage.services.delivering import send_trial
from triage.services.following import follow, followed_word
from triage.services.incidents import assign, link_ticket, rename, set_severity, set_status
from triage.services.nodes import add_note, drain
from triage.services.quotes import read_quote
from triage.services.saved_views import save_view
from triage.services.sharing import make_share, share_token
from triage.services.tokens import create_token
from triage.services.verdicts import Answer, correct

NOT_ASKED = {
    "readyz": "is no page, and says 503 where no worker runs",
    "openid_connect_login": "leads to a provider; tests/access/test_single_sign_on.py",
    "openid_connect_callback": "is opened by a provider; tests/access/test_single_sign_on.py",
}
PROMQL = 'url = "http://127.0.0.1:9"\n'
HOOK = {"url": "https://hooks.example.org/in", "secret": "env:FAULTLINE_CHANNEL_SECRET"}
TOO_WIDE = """() => {
    const limit = document.documentElement.clientWidth
    if (document.documentElement.scrollWidth <= limit) return []
    const clipped = element => {
        for (let over = element.parentElement; over && over !== document.body; over = over.parentElement)
            if (getComputedStyle(over).overflowX !== "visible") return true
        return false
    }
    const beyond = [...document.body.querySelectorAll("*")].filter(
        element => element.getBoundingClientRect().right > limit + 0.5)
    const loose = beyond.filter(element => !clipped(element))
    const wide = loose.length ? loose : beyond
    const named = element => element.tagName.toLowerCase() + [...element.classList].map(name => "." + name).join("")
    return wide.filter(element => !wide.some(other => other !== element && element.contains(other))).slice(0, 4).map(
        element => [element.parentElement.parentElement, element.parentElement, element].map(named).join(" > ") +
            `: ${Math.round(element.getBoundingClientRect().right)} ${element.textContent.trim().slice(0, 40)}`
    ).concat(`page ${document.documentElement.scrollWidth}`)
}"""
"""The innermost elements that make a page scroll sideways; [] where none does."""
Values = dict[str, Any]


def routes_of_pages() -> list[Route]:
    """The routes that may be pages: not those of the API and of what is compatible with another one."""
    return [route for route in all_routes() if ":" not in route.name and route.name not in NOT_ASKED]


def pages(user: User, values: Values, *about: str) -> dict[str, str]:
    """The addresses of all whole pages by the names of their routes; with `about`, of those that are about such things.

    Raises AssertionError for a route that shows nothing with these values: then nobody would have looked at it.
    """
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    found: dict[str, str] = {}
    silent = []
    for route in routes_of_pages():
        if about and not set(about) & set(route.about):
            continue
        address = route.address(values)
        answer = client.get(address)
        if answer.status_code not in (200, 204, 302, 304, 405):
            silent.append(f"{route.name}: {address} answers {answer.status_code}")
        is_html = answer.status_code == 200 and answer["Content-Type"].startswith("text/html")
        if is_html and not answer.streaming and re.search(rb"<html[\s>]", answer.content[:2000]):
            found[route.name] = address
    assert silent == []
    return found


def lived_in(
    attempt: Attempt, boss: User, other: User, *, said: str = "", line: int = 1, corrected: Attempt | None = None
) -> Values:
    """Two people do everything that can be done with an attempt; `said` is at the end of whatever they write, `line` is
    quoted, and `corrected` is the attempt that is corrected, else the same one. Returns what the addresses of all
    routes take.
    """
    incident = attempt.membership.incident
    node = (attempt.blamed_nodes or attempt.nodes)[0]
    stream = attempt.streams.filter(source="syslog", node=node).first() or attempt.streams.first()
    ref = next(iter(attempt.diagnosis.evidence))
    quote = read_quote(f"{stream.name}:{line}", attempt.pk) if stream else None
    judged = corrected or attempt
    correct(
        judged.pk, other, diagnosis_id=judged.diagnosis_id or 0, seen=None, kind="wrong_cause",
        reason=f"The switch's log shows that its port went down first. {said}",
        answer=Answer(
            "network", "ethernet", f"Link to the storage network flapped {said}",
            (judged.blamed_nodes or judged.nodes)[:1], list(judged.diagnosis.evidence)[:1],
        ),
    )  # fmt: skip
    set_status(incident.pk, other, "investigating", seen=incident.status, note=f"Looking at the cable. {said}")
    assign(incident.pk, other, other.pk, seen=None)
    set_severity(incident.pk, other, 2, seen=None)
    if said:
        rename(incident.pk, other, f"{incident.title} {said}")
    link_ticket(
        incident.pk, other, url="https://tickets.example.org/browse/HW-2291?a='\"<b>", label=f"HW-2291 {said}",
        note=f"new cable {said}",
    )  # fmt: skip
    add_comment(incident, other, f"Always the same link, @{boss.username}. {said}")
    comment = add_comment(attempt, boss, f"I drained {node}. {said}", quotes=[quote] if quote else [])
    mended = f"I drained {node} and asked for a cable, @{other.username}. {said}"
    edit_comment(comment.pk, boss, mended, seen=comment.text)
    add_note(attempt.cluster, node, other, f"Connector reseated. {said}")
    drain(attempt.cluster, node, other, f"Waits for a cable. {said}")
    view, _ = save_view(boss, f"Mine {said}", "domain:hardware", audience="all")
    followed = follow(boss, "failures", "q=domain:hardware", note=f"team wiki {said}")
    token, _ = create_token(boss, f"epilog {said}"[:80], ["read"])
    shares = [make_share(thing, boss, note=f"vendor {said}") for thing in (attempt, incident)]
    channel = save_channel(f"on-call hook {said}", "webhook", HOOK)
    route = save_route(
        RouteFields(name=f"hardware to on-call {said}", channel_id=channel.pk, news=["opened"], query="domain:hardware")
    )
    save_cluster("gpu-west", {"time_zone": "America/Los_Angeles"}, boss, new=True)
    save_source("gpu-west", "slurm", "slurm", "", boss)
    save_source("gpu-west", "promql", "promql", PROMQL, boss)
    return {
        "attempt": attempt.pk,
        "diagnosis": attempt.diagnosis_id,
        "incident": incident.pk,
        "comment": comment.pk,
        "ticket": incident.tickets.latest("pk").pk,
        "share": shares[0].pk,
        "token": share_token(shares[0]),
        "view": view.pk,
        "notification": Notification.objects.filter(user=boss).latest("pk").pk,
        "node": node,
        "stream": stream.name if stream else "",
        "evidence": ref,
        "rule": attempt.rule or "xid.149",
        "followed": followed.pk,
        "followed word": followed_word(followed),
        "api token": token.pk,
        "channel": channel.pk,
        "channel kind": "slack",
        "route": route.pk,
        "delivery": send_trial(channel, boss).pk,
        "configured cluster": "gpu-west",
        "configured source": "promql",
        "shared incident": share_token(shares[1]),
    }
