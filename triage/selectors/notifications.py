"""What people were told and have not read."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser

from triage.models import Notification

MANY = 99


def unread_count(user: AbstractBaseUser) -> int:
    """How many notifications wait for a person, at most MANY."""
    return Notification.objects.filter(user=user, read_at__isnull=True).order_by()[:MANY].count()


def notes_of(user: AbstractBaseUser, limit: int = 100) -> list[Notification]:
    """What a person was told, newest first."""
    mine = Notification.objects.filter(user=user).select_related("actor", "comment", "incident", "attempt__workload")
    return list(mine[:limit])
