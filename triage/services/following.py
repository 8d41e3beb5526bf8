"""Feeds and badges that are followed by an address without a sign-in: made, recognised, ended."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from triage.models import Attempt, Followed, FollowedKind
from triage.services.facts import told
from triage.services.signed_addresses import is_genuine, pk_of, word_of
from triage.text import printable

MAX_ADDRESSES = 100
"""That one person has open at a time."""
BADGES = (FollowedKind.ATTEMPT, FollowedKind.WORKLOAD)
_SALT = "triage.followed/1"
_USED_EVERY = timedelta(minutes=1)


class FollowRefused(ValueError):
    """An address that can't be made; one line. `field` names what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@transaction.atomic
def follow(user: User, kind: str, about: str = "", *, note: str = "") -> Followed:
    """An address for a feed (`about`: the query of its page) or a badge (`about`: an attempt's number).

    Raises FollowRefused.
    """
    if kind not in FollowedKind.values:
        raise FollowRefused("kind", "Choose what the address shows.")
    about = about.strip()
    if kind in BADGES:
        about = about.lower().removeprefix("#")
        known = about.isascii() and about.isdecimal() and len(about) < 19
        if not known or not Attempt.objects.filter(pk=int(about)).exists():
            raise FollowRefused("about", "There is no attempt of this number.")
    if len(about) > 2000:
        raise FollowRefused("about", "The search is too long to be kept.")
    User.objects.select_for_update().get(pk=user.pk)  # one at a time for each person
    if Followed.objects.filter(by=user, revoked_at=None).count() >= MAX_ADDRESSES:
        raise FollowRefused("kind", f"{MAX_ADDRESSES} addresses are the most. End one first.")
    note = told(printable(" ".join(note.split())), 200)
    return Followed.objects.create(by=user, kind=kind, about=about, note=note, nonce=secrets.token_urlsafe(16))


def stop_following(user: User, pk: int) -> bool:
    """Ends an address of one's own now. False when it is none, or had ended."""
    mine = Followed.objects.filter(pk=pk, by=user, revoked_at=None)
    return bool(mine.update(revoked_at=timezone.now()))


def followed_word(followed: Followed) -> str:
    """The last part of its address."""
    return word_of(_SALT, followed.pk, followed.nonce)


def find_followed(word: str) -> Followed | None:
    """What an address shows, also when it has ended; None when it was never given out."""
    found = Followed.objects.select_related("by").filter(pk=pk_of(word)).first()
    genuine = is_genuine(_SALT, word, found.pk if found else None, found.nonce if found else None)
    return found if genuine else None


def note_use(followed: Followed) -> None:
    """Keeps when it was last read, to the minute."""
    now = timezone.now()
    if followed.last_used_at is None or followed.last_used_at < now - _USED_EVERY:
        Followed.objects.filter(pk=followed.pk).update(last_used_at=now)
