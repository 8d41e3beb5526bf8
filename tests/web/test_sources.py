"""Where failures come from: whether each source answers, what the list says when one does not, how to connect one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.triage import cast
from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage.health import broker_client
from triage.models import Attempt, Collection, Discovery
from triage.services.attempts import record_attempt
from triage.services.sources import forget_configuration
from triage.services.triage import begin_triage, request_triage
from triage.tasks.discovery import discover_source

Configure = Callable[[str], None]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Writes a faultline.toml."""
    file = tmp_path / "faultline.toml"

    def write(text: str) -> None:
        file.write_text(text)
        monkeypatch.setenv("FAULTLINE_CONFIG", str(file))
        forget_configuration()

    yield write
    monkeypatch.undo()
    forget_configuration()


BROKEN = """
[clusters.c9.sources.slurm]
command_prefix = ["/nonexistent/ssh", "login1"]
"""


def bundles(folder: Path) -> str:
    return f'[clusters.c8.sources.drop]\nkind = "files"\nroots = {{drop = "{folder}"}}\nwatch = ["drop"]\n'


def page(client: Client, address: str = "/?q=") -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_with_nothing_connected_the_list_leads_to_how_to_connect(signed_in: Client, configure: Configure) -> None:
    configure("")
    shown = page(signed_in)
    assert "No cluster is connected." in shown and 'href="/sources/">Connect a cluster</a>' in shown
    assert "command_prefix" in page(signed_in, "/sources/")


def test_a_source_that_does_not_answer_is_said_above_the_list(
    signed_in: Client, make_attempt: MakeAttempt, configure: Configure, tmp_path: Path
) -> None:
    configure(BROKEN + bundles(tmp_path))
    make_attempt()
    assert "has never answered" not in page(signed_in), "it was not searched yet"
    discover_source("c9/slurm")
    discover_source("c8/drop")
    shown = page(signed_in)
    assert "c9/slurm has never answered" in shown and "Failures of c9 may be missing from this list." in shown
    assert "/nonexistent/ssh" in shown, "what the connector said"
    assert "c8/drop" not in shown
    assert "c9/slurm" not in page(signed_in, "/?q=cluster:c1"), "it has nothing to do with this list"
    sources = page(signed_in, "/sources/")
    assert "Does not answer" in sources and "never did" in sources and "Answers" in sources
    Discovery.objects.filter(connector="c9/slurm").update(answered_at=timezone.now() - timedelta(hours=2))
    shown = page(signed_in)
    assert "c9/slurm has not answered since" in shown and "after that time may be missing" in shown


def test_a_source_that_no_worker_searches_is_said_too(
    signed_in: Client, make_attempt: MakeAttempt, configure: Configure, tmp_path: Path
) -> None:
    configure(bundles(tmp_path))
    discover_source("c8/drop")
    assert "The sources are searched" in page(signed_in)
    make_attempt()
    long_ago = timezone.now() - timedelta(hours=3)
    Discovery.objects.update(last_run_at=long_ago, answered_at=long_ago)
    assert "c8/drop was last searched at" in page(signed_in) and "no worker takes it on" in page(signed_in)
    assert "Not searched" in page(signed_in, "/sources/")
    Discovery.objects.update(heartbeat_at=timezone.now())
    assert "no worker takes it on" not in page(signed_in), "a long search is at work"


def test_what_is_wrong_in_the_configuration_stands_on_the_page(signed_in: Client, configure: Configure) -> None:
    configure("[clusters.c9.sources.slurmm]\nx = 1\n")
    shown = page(signed_in, "/sources/")
    assert "in the configuration: what is wrong is left out" in shown and "slurmm" in shown


def test_what_a_source_gave_in_the_last_day_is_counted(
    signed_in: Client, make_attempt: MakeAttempt, configure: Configure, tmp_path: Path
) -> None:
    configure(bundles(tmp_path))
    reports: tuple[list[dict[str, Any]], ...] = (
        [{"source": "syslog", "status": "ok"}],
        [{"source": "syslog", "status": "error", "note": "gx-02.log: permission denied"}],
    )
    for one in reports:
        attempt = make_attempt(ended_at=timezone.now())
        Collection.objects.create(
            attempt=attempt, connector="c8/drop", state="done", finished_at=timezone.now(), reports=one
        )
    old = make_attempt(ended_at=stories.END)
    Collection.objects.create(attempt=old, connector="c8/drop", state="done", finished_at=timezone.now(), reports=[])
    shown = page(signed_in, "/sources/")
    assert "for 1 of 2 attempts" in shown and "gx-02.log: permission denied" in shown


@pytest.mark.django_db(transaction=True)
def test_a_search_can_be_asked_for_at_once(
    signed_in: Client, configure: Configure, tmp_path: Path, broker: None
) -> None:
    configure(bundles(tmp_path))
    with broker_client() as client:
        queue = settings.CELERY_TASK_ROUTES["triage.discover_source"]["queue"]
        client.delete(queue)
        answer = signed_in.post(reverse("sources-search"), {"source": "c8/drop"}, follow=True)
        assert "c8/drop is searched as soon as a worker is free" in answer.content.decode()
        assert b"triage.discover_source" in client.lindex(queue, 0)
        client.delete(queue)
    answer = signed_in.post(reverse("sources-search"), {"source": "c8/other"}, follow=True)
    assert "Not searched: source &#x27;c8/other&#x27; is not configured" in answer.content.decode()


def test_the_table_renews_itself_and_opened_by_hand_leads_to_the_page(
    signed_in: Client, configure: Configure, tmp_path: Path
) -> None:
    configure(bundles(tmp_path))
    address = reverse("sources-news")
    first = signed_in.get(address, headers={"HX-Request": "true"})
    same = signed_in.get(address, headers={"HX-Request": "true", "If-None-Match": first["ETag"]})
    assert first.status_code == 200 and same.status_code == 304
    discover_source("c8/drop")
    assert b"Answers" in signed_in.get(address, headers={"HX-Request": "true", "If-None-Match": first["ETag"]}).content
    assert signed_in.get(address)["Location"] == "/sources/"


def test_what_waits_is_told_by_cluster_with_its_age(signed_in: Client, configure: Configure, db: None) -> None:
    configure("")
    assert "every attempt that was asked for is diagnosed" in page(signed_in, "/sources/")
    for workload, cluster in (("1", "c1"), ("2", "c1"), ("3", "c2")):
        request_triage(record_attempt(cast.facts(workload, cluster=cluster))[0].pk)
    begin_triage(Attempt.objects.get(workload__workload_id="2").pk)
    record_attempt(cast.facts("4", cluster="c3"))  # nobody asked for it yet
    shown = re.sub(r"<[^>]+>|\s+", " ", page(signed_in, "/sources/").partition('id="queue"')[2].partition(">")[2])
    assert re.search(r"c1 +1 +1 .*c2 +1 +0 ", shown) and "c3" not in shown
    address = reverse("sources-queue")
    answer = signed_in.get(address, headers={"HX-Request": "true"})
    again = signed_in.get(address, headers={"HX-Request": "true", "If-None-Match": answer.headers["ETag"]})
    assert (answer.status_code, again.status_code) == (200, 304)
