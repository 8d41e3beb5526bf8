"""What logs, jobs and people may be called or say does nothing on any page there is, in a real browser."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Dialog, Page

from engine import model as engine
from tests.e2e.conftest import work
from tests.e2e.whole import TOO_WIDE, Values, lived_in, pages
from tests.triage import cast
from tests.web import stories
from tests.web.conftest import diagnose_with
from tests.web.test_hostile import FORBIDDEN, NASTY, hostile_story
from triage.models import Attempt
from triage.services.attempts import record_attempt
from triage.services.bundles import import_bundle
from triage.services.triage import request_triage

pytestmark = pytest.mark.browser

ACT = (
    "</title></textarea><script>document.documentElement.dataset.hurt=1</script>"
    "\"'><img src=x onerror=document.documentElement.dataset.hurt=2>"
    "<svg onload=document.documentElement.dataset.hurt=3>"
    "[go](javascript:document.documentElement.dataset.hurt=4) {{ 7|add:7 }} {% now 'Y' %}"
)
MEAN = ACT + NASTY
NODE = "gx-02'\"><b>/%2e%2e/?a#b"
MEGABYTE = "[rank3]: KeyError: '" + MEAN + "A" * 1_000_000 + "'"
APPLOG = f"""\
2026-11-03 04:11:54,433 rank 3 iteration 1525 | loss 2.1 {MEAN}
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/ada/{MEAN}.py", line 12, in <module>
{MEGABYTE}
2026-11-03 04:12:54,433 rank 3 {MEAN}
"""
SYSLOG = f"""\
Nov  3 04:11:16 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1, name={MEAN}, GPU has fallen off the bus.
Nov  3 04:11:17 gx-02 kernel: {MEAN}
Nov  3 04:22:29 gx-02 systemd[1]: Starting {MEAN}
"""


def manifest() -> bytes:
    """Names with quotes, slashes and tags; YAML takes JSON."""
    workload = {"id": f"48213/../'\"{ACT}"[:120], "name": MEAN, "scheduler": "slurm", "cluster": f"c1'/\"{ACT}"[:80],
                "user": f"ada/{MEAN}"[:120], "queue": f"q'\"/{ACT}"[:120]}  # fmt: skip
    attempt = {"number": 1, "state": f"FAILED {ACT}", "exit_code": "1:0", "reason": MEAN, "nodes": ["gx-02", NODE],
               "started_at": "2026-11-03T02:00:00Z", "ended_at": "2026-11-03T04:22:31Z"}  # fmt: skip
    return json.dumps({"schema": 1, "workload": workload, "attempt": attempt}).encode()


def collected(folder: Path) -> Attempt:
    """An attempt that went all the way through collecting and the engine."""
    files = {
        "attempt.yaml": manifest(),
        'applog/it\'s "a" <b> & #1 %41.log': APPLOG.encode(errors="surrogatepass"),
        "syslog/gx-02.log": SYSLOG.encode(),
    }
    attempt = work(import_bundle(cast.folder(folder, files)).attempt)
    assert attempt.rule == "xid.79" and attempt.workload.name and attempt.streams.count() == 2
    return attempt


def with_ten_thousand_symptoms(end: datetime) -> Attempt:
    """An attempt whose diagnosis has whatever an engine could say."""
    story = hostile_story()
    at = stories.at("04:21:58")
    symptoms = tuple(
        engine.Symptom(
            rule=f"x.s{number}", title=f"symptom {number} {ACT}", nodes=(f"gx-{number}", NODE), ranks=(number,),
            count=2, first_at=at, last_at=None, explained_by="root", evidence=("e2",),
        )
        for number in range(10_000)
    )  # fmt: skip
    entries = tuple(
        engine.TimelineEntry(at=at, kind="symptom", node=f"gx-{number}", title=f"symptom {ACT}", evidence=("e2",))
        for number in range(10_000)
    )
    workload = engine.Workload(id="900", name=MEAN, scheduler="slurm", cluster="c1", user="jun", queue="gpu")
    facts = engine.Attempt(
        workload=workload, number=1, state="FAILED", started_at=stories.START.timestamp(), ended_at=end.timestamp(),
        nodes=(*stories.NODES, NODE), gpus_per_node=8,
    )  # fmt: skip
    attempt, _ = record_attempt(facts)
    request_triage(attempt.pk)
    diagnose_with(attempt, stories._changed(story, symptoms=symptoms, timeline=story.timeline + entries))
    return Attempt.objects.get(pk=attempt.pk)


@pytest.fixture
def values(boss: User, tmp_path: Path) -> Values:
    evil = User.objects.create_user("evil", first_name="<b>'\"", last_name="\u202e<script>1</script>")
    return lived_in(collected(tmp_path / "bundle"), boss, evil, said=MEAN)


def test_hostile_text_does_nothing_on_any_page(signed_page: Page, live_server: Any, boss: User, values: Values) -> None:
    """It runs nothing, changes no direction, hides nothing and makes no page wider than a phone."""
    large = with_ten_thousand_symptoms(stories.END)
    addresses = list(pages(boss, values).values())
    addresses += [f"/attempts/{values['attempt']}/streams/applog/it's%20%22a%22%20%3Cb%3E%20&%20%231%20%2541.log"]
    addresses += [f"/incidents/{values['incident']}/?kind=system", f"/s/{values['shared incident']}/"]
    addresses += [f"/attempts/{values['attempt']}/timeline/?by=rank", "/?q=&cols=ran,outcome,queue,nodes,rule"]
    addresses += [f"/attempts/{large.pk}/{part}" for part in ("", "correct/", "compare/", "evidence/e1/", "share/")]
    addresses += [f"/incidents/{large.membership.incident_id}/"]
    page = signed_page
    page.set_viewport_size({"width": 320, "height": 800})
    dialogs: list[str] = []

    def listen(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", listen)
    wrong = []
    for address in addresses:
        page.goto(live_server.url + address)
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        found = page.evaluate(
            """() => ({
                hurt: document.documentElement.dataset.hurt || "",
                foreign: document.querySelectorAll("img, svg[onload], main script, main style").length,
                links: [...document.links].filter(link => !/^https?:$/.test(link.protocol)).length,
            })"""
        )
        if found != {"hurt": "", "foreign": 0, "links": 0}:
            wrong.append((address, found))
        wide = page.evaluate(TOO_WIDE)
        if wide:
            wrong.append((address, wide))
        seen = FORBIDDEN.search(page.content())
        if seen:
            wrong.append((address, page.content()[max(0, seen.start() - 100) : seen.end() + 20]))
    assert not wrong, "\n".join(map(str, wrong))
    assert dialogs == []
