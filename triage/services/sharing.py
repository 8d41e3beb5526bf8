"""Share links: made, revoked, opened."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from triage.access.sight import all_seeing
from triage.models import Attempt, EventKind, Incident, ShareLink, ShareOpening
from triage.services.events import record_event
from triage.services.facts import short, told
from triage.services.signed_addresses import is_genuine, pk_of, word_of
from triage.text import printable

DEFAULT_DAYS = 7
DAYS = (1, 7, 30)
MAX_READERS = 500
"""Of one link that get a row and an entry of their own; further ones count on the last."""
_SALT = "triage.share/1"


@transaction.atomic
def make_share(
    subject: Attempt | Incident, actor: AbstractBaseUser, *, days: int = DEFAULT_DAYS, note: str = ""
) -> ShareLink:
    """A link to one attempt or incident that ends after `days`. Raises ValueError for a span that isn't offered."""
    if days not in DAYS:
        raise ValueError("a link lasts 1, 7 or 30 days")
    where = {"attempt": subject} if isinstance(subject, Attempt) else {"incident": subject}
    share = ShareLink.objects.create(
        **where,
        nonce=secrets.token_urlsafe(16),
        note=told(printable(" ".join(note.split())), 200),
        by=actor,
        expires_at=timezone.now() + timedelta(days=days),
    )
    record_event(
        EventKind.SHARE_MADE, **where, actor=actor, share=share.pk, expires_at=share.expires_at.isoformat(), days=days
    )
    return share


@transaction.atomic
def revoke_share(share_id: int, actor: AbstractBaseUser) -> bool:
    """Ends a link now. False when it had ended or doesn't exist."""
    share = (
        ShareLink.objects.select_for_update(of=("self",))
        .select_related("attempt", "incident")
        .filter(pk=share_id, revoked_at__isnull=True)
        .first()
    )
    if share is None:
        return False
    share.revoked_at, share.revoked_by = timezone.now(), actor
    share.save(update_fields=["revoked_at", "revoked_by"])
    record_event(EventKind.SHARE_REVOKED, attempt=share.attempt, incident=share.incident, actor=actor, share=share.pk)
    return True


def share_token(share: ShareLink) -> str:
    """The last part of the link's address."""
    return word_of(_SALT, share.pk, share.nonce)


@all_seeing
def find_share(token: str) -> ShareLink | None:
    """The link of an address, also when it has ended; None when the address was never given out."""
    share = ShareLink.objects.select_related("by").filter(pk=pk_of(token)).first()
    genuine = is_genuine(_SALT, token, share.pk if share else None, share.nonce if share else None)
    return share if genuine else None


def is_open(share: ShareLink) -> bool:
    """Whether the link still shows something."""
    return share.revoked_at is None and share.expires_at > timezone.now()


@transaction.atomic
def record_opening(share: ShareLink, *, address: str | None, browser: str) -> None:
    """Keeps that somebody opened the link. The first time of each reader is an entry of the timeline."""
    reader = hashlib.sha256(f"{share.nonce}|{address}|{browser}".encode("utf-8", "replace")).hexdigest()
    known = ShareOpening.objects.filter(share=share, reader=reader)
    if known.update(times=F("times") + 1, last_at=timezone.now()):
        return
    if share.openings.count() >= MAX_READERS:
        last = share.openings.order_by("-pk").values("pk")[:1]
        ShareOpening.objects.filter(pk__in=last).update(times=F("times") + 1, last_at=timezone.now())
        return
    _, created = ShareOpening.objects.get_or_create(
        share=share, reader=reader, defaults={"address": address, "browser": short(browser, 200)}
    )
    if created:
        record_event(
            EventKind.SHARE_OPENED,
            attempt=share.attempt,
            incident=share.incident,
            share=share.pk,
            address=address or "",
            browser=short(browser, 200),
        )
