"""UTC, the reader's time or the cluster's: one choice, for everything that a page tells."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage import times
from triage.models import Cluster
from triage.web.zones import cookie_value, zone_of


def choose(client: Client, choice: str, local: str = "") -> None:
    client.post(reverse("preferences"), {"zone": choice, "local_zone": local, "keys": "on"})


def test_times_are_utc_until_something_else_is_chosen(signed_in: Client, make_attempt: MakeAttempt) -> None:
    page = signed_in.get(reverse("attempt", args=[make_attempt().pk])).content.decode()
    assert "All times are UTC" in page and stories.END.strftime("%H:%M:%S") in page


def test_cluster_time_is_that_of_the_attempts_cluster(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    Cluster.objects.update(time_zone="America/Chicago")
    choose(signed_in, "cluster")
    page = signed_in.get(reverse("attempt", args=[attempt.pk])).content.decode()
    local = stories.END.astimezone(zone_of("America/Chicago"))
    assert f"End, exit 134:0, {local:%H:%M:%S}" in page, "in the picture too"
    assert "America/Chicago" in page and f'datetime="{times.machine(stories.END)}"' in page
    assert "America/Chicago" in signed_in.get("/").content.decode(), "one zone for all clusters"
    Cluster.objects.create(name="other", time_zone="Asia/Tokyo")
    assert "the clusters are in several zones" in signed_in.get("/").content.decode()


def test_the_readers_own_zone_is_named_by_the_browser(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    choose(signed_in, "local", "Europe/Berlin")
    page = signed_in.get(reverse("attempt", args=[attempt.pk])).content.decode()
    assert "Times are yours, Europe/Berlin" in page
    assert f"{stories.END.astimezone(zone_of('Europe/Berlin')):%H:%M:%S}" in page
    choose(signed_in, "utc")
    assert "All times are UTC" in signed_in.get("/").content.decode()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/localtime", "", "Nowhere/None", "x" * 500, "\x00"])
def test_a_zone_that_is_none_falls_back_to_utc(name: str, signed_in: Client) -> None:
    assert zone_of(name) is None and cookie_value("local", name) == "utc"
    signed_in.cookies["faultline_zone"] = f"local:{name[:40]}".replace("\x00", "%")
    assert "All times are UTC" in signed_in.get("/").content.decode()


def test_the_choice_of_one_request_does_not_reach_the_next(signed_in: Client) -> None:
    choose(signed_in, "local", "Asia/Tokyo")
    signed_in.get("/")
    assert times.clock(datetime(2026, 1, 1, 12, tzinfo=UTC)) == "12:00:00"


def test_zones_without_letters_are_told_as_offsets() -> None:
    zone = zone_of("America/Sao_Paulo")
    assert zone is not None
    token = times.use_zone(zone)
    try:
        moment = datetime(2026, 1, 1, 1, 30, tzinfo=UTC)
        assert times.zone_word(moment) == "UTC-03:00"
        assert times.full(moment) == "31 Dec 2025 22:30:00 UTC-03:00"
    finally:
        times.end_zone(token)
