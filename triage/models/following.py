"""Followed: what somebody follows from outside by an address that needs no sign-in: a feed, or a badge."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class FollowedKind(models.TextChoices):
    """What an address shows."""

    FAILURES = "failures", "Feed of failures"
    INCIDENTS = "incidents", "Feed of incidents"
    ATTEMPT = "attempt", "Badge of one attempt"
    WORKLOAD = "workload", "Badge of a workload's newest attempt"


class Followed(models.Model):
    """The address is signed over `nonce`. It shows what `by` sees at that moment, until it is revoked."""

    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="followed")
    kind = models.CharField(max_length=16, choices=FollowedKind)
    about = models.CharField(
        max_length=2000, blank=True, help_text="Of a feed: the query of its page. Of a badge: the attempt's number."
    )
    note = models.CharField(max_length=200, blank=True, help_text="Where it is used.")
    nonce = models.CharField(max_length=22, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["by", "-created_at"], name="followed_by_owner")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.about}".strip()
