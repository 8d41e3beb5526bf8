"""Share links: signed, expiring, revocable, their openings on record."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.triage.conftest import MakeAttempt
from triage.models import ShareLink, ShareOpening, TimelineEvent
from triage.services import sharing
from triage.services.sharing import find_share, is_open, make_share, record_opening, revoke_share, share_token


@pytest.fixture
def share(diagnosed: MakeAttempt, maren: User) -> ShareLink:
    return make_share(diagnosed(), maren)


@pytest.fixture
def maren(db: None) -> User:
    return User.objects.create_user("maren")


def test_a_link_lasts_seven_days_and_is_found_by_its_token_alone(share: ShareLink) -> None:
    assert timedelta(days=6, hours=23) < share.expires_at - timezone.now() <= timedelta(days=7)
    token = share_token(share)
    assert find_share(token) == share and is_open(share)
    assert share.nonce not in token, "the database doesn't hold the address"
    head, _, signature = token.partition(".")
    forged = ("b" if signature[0] != "b" else "c") + signature[1:]
    for wrong in ("", head, f"{head}.", f"{head}.{forged}", f"zzz.{signature}", token + "a", token.upper() + "\x00"):
        assert find_share(wrong) is None


def test_another_secret_key_or_nonce_makes_the_address_worthless(share: ShareLink, settings: object) -> None:
    token = share_token(share)
    settings.SECRET_KEY = "another"  # type: ignore[attr-defined]
    assert find_share(token) is None


def test_a_link_ends_by_time_or_by_hand(share: ShareLink, maren: User) -> None:
    assert revoke_share(share.pk, maren) and not revoke_share(share.pk, maren)
    found = find_share(share_token(share))
    assert found is not None and not is_open(found), "known, so that the page can say what happened"
    ShareLink.objects.update(revoked_at=None, expires_at=timezone.now())
    found = find_share(share_token(share))
    assert found is not None and not is_open(found)
    with pytest.raises(ValueError, match="1, 7 or 30"):
        make_share(share.attempt, maren, days=365)


def test_each_reader_is_on_record_once_with_a_count(share: ShareLink, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        record_opening(share, address="192.0.2.7", browser="Firefox")
    record_opening(share, address="192.0.2.7", browser="Slackbot")
    assert sorted(share.openings.values_list("times", flat=True)) == [1, 3]
    events = TimelineEvent.objects.filter(kind="share.opened")
    assert [event.payload["browser"] for event in events] == ["Firefox", "Slackbot"]
    assert all(event.attempt == share.attempt and event.actor is None for event in events)
    monkeypatch.setattr(sharing, "MAX_READERS", 2)
    for number in range(5):
        record_opening(share, address=f"198.51.100.{number}", browser="x" * 3000)
    assert ShareOpening.objects.count() == 2 and events.count() == 2, "the record can't be flooded from outside"
    assert sum(share.openings.values_list("times", flat=True)) == 9
