"""Log text and names are written by anyone. Nothing of them may act on a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from engine import model as engine
from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage.selectors.query import Query, Term
from triage.services.saved_views import save_view
from triage.templatetags.fleet import list_url, node_url
from triage.text import printable, printable_tree

SCRIPT = "<script>alert(1)</script>"
NASTY = (
    f"{SCRIPT} \x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 "
    "\u202egnp.exe\u2066 zero\u200bwidth \x07 \x9b31m \"'`"
)


def poison(value: object) -> object:
    """Every free text of a diagnosis with something nasty at its end; what has a fixed set of words stays."""
    if isinstance(value, str):
        return value + NASTY
    if isinstance(value, list):
        return [poison(item) for item in value]
    if isinstance(value, dict):
        kept = {
            "id",
            "at",
            "first_at",
            "last_at",
            "role",
            "kind",
            "action",
            "status",
            "source",
            "domain",
            "sub_domain",
            "outcome",
        }
        kept |= {
            "schema",
            "evidence",
            "explained_by",
            "started_at",
            "ended_at",
            "clock",
            "rule",
            "ruleset",
            "key",
            "version",
        }
        return {key: item if key in kept else poison(item) for key, item in value.items()}
    return value


def hostile_story() -> engine.Diagnosis:
    plain = stories.nvlink().to_dict()
    evidence = [{**poison(item), "clock": item["clock"]} for item in plain["evidence"]]  # type: ignore[dict-item]
    return msgspec.convert({**poison(plain), "evidence": evidence}, engine.Diagnosis)  # type: ignore[dict-item]


def tags_of(page: str) -> list[tuple[str, dict[str, str]]]:
    """Every start tag with its attributes, as a browser would read them."""
    found: list[tuple[str, dict[str, str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, {name: value or "" for name, value in attrs}))

    Reader().feed(page)
    return found


FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


@pytest.mark.parametrize(
    "name",
    ["failures", "attempt", "evidence", "all columns", "searched", "node", "fleet", "insights", "views", "suggestions"],
)
def test_hostile_text_reaches_no_page_raw(name: str, signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt(
        hostile_story(),
        name=f"job{SCRIPT}",
        user=f'"><img src=x onerror=alert(1)>{NASTY[:60]}',
        cluster="c1\u202e",
        queue="q'\"",
        id="a/../b?c#d%00",
        state=f"FAILED {SCRIPT}",
        nodes=(f"gx-02{NASTY}", "gx-01"),
    )
    node, cluster = attempt.nodes[0], attempt.cluster.name
    save_view(attempt_owner(), f"view {NASTY}", str(Query((Term("user", attempt.user),))), audience="all")
    url = {
        "failures": "/",
        "attempt": f"/attempts/{attempt.pk}/",
        "evidence": f"/attempts/{attempt.pk}/evidence/e1/",
        "all columns": "/?q=&cols=ran,outcome,queue,nodes,rule",
        "searched": list_url("user", attempt.user, "cluster", cluster, "node", node),
        "node": node_url(node, cluster),
        "fleet": "/nodes/",
        "insights": "/insights/?weeks=52",
        "views": "/views/",
        "suggestions": "/failures/suggest/?q=cluster:",
    }[name]
    answer = signed_in.get(url, headers={"HX-Request": "true"} if name == "suggestions" else {})
    assert answer.status_code == 200
    page = answer.content.decode()
    assert SCRIPT not in page and "<img" not in page and "alert(1)</script>" not in page
    for tag, attributes in tags_of(page):
        assert tag != "style" and not any(name.startswith("on") or name == "style" for name in attributes), (
            tag,
            attributes,
        )
        assert tag != "script" or attributes.get("src", "").startswith("/static/")
        assert not attributes.get("href", "").strip().lower().startswith(("javascript:", "data:"))
    assert not FORBIDDEN.search(page), FORBIDDEN.search(page)
    if name not in ("views", "fleet"):  # they cut names before what is hidden in these
        assert "\u27e8U+202E\u27e9" in page or "\\u{202e}" in page, "what was hidden is shown"


def attempt_owner() -> User:
    return User.objects.get(username="ada")


def test_every_page_forbids_inline_script_and_style(signed_in: Client, make_attempt: MakeAttempt) -> None:
    for url in (
        "/",
        f"/attempts/{make_attempt().pk}/",
        "/upload/",
        "/nodes/",
        "/nodes/gx-02/",
        "/insights/",
        "/rules/",
    ):
        policy = signed_in.get(url)["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy


def test_colours_are_dropped_and_hidden_characters_shown() -> None:
    assert printable("\x1b[1;31mError\x1b[0m") == "Error"
    assert printable("a\x00b\x07c\x7fd") == "a\u2400b\u2407c\u2421d"
    assert printable("safe\u202etxt") == "safe\u27e8U+202E\u27e9txt"
    assert printable("tab\tstays, so does \u00e9 and \u65e5\u672c") == "tab\tstays, so does \u00e9 and \u65e5\u672c"
    assert printable_tree({"k\u200b": ["\x1b[0mx", 1, None]}) == {"k\u27e8U+200B\u27e9": ["x", 1, None]}


def test_ten_thousand_symptoms_make_a_page_of_bounded_size(signed_in: Client, make_attempt: MakeAttempt) -> None:
    story = stories.nvlink()
    many = tuple(
        engine.Symptom(
            rule=f"x.s{n}",
            title=f"symptom {n}",
            nodes=(f"gx-{n}",),
            ranks=tuple(range(n, n + 50)),
            count=n + 1,
            first_at=stories.at("04:21:58"),
            last_at=None,
            explained_by="root",
            evidence=("e2",),
        )
        for n in range(10_000)
    )
    events = tuple(
        engine.TimelineEntry(
            at=stories.at("04:21:58"), kind="symptom", node=f"gx-{n}", title=f"symptom {n}", evidence=("e2",)
        )
        for n in range(10_000)
    )
    attempt = make_attempt(stories._changed(story, symptoms=many, timeline=story.timeline + events))
    answer = signed_in.get(reverse("attempt", args=[attempt.pk]))
    assert answer.status_code == 200
    assert len(answer.content) < 600_000
    assert "9,800 more symptoms" in answer.content.decode()
