"""Share links: one attempt or one incident, read only, for whoever has the address, until it expires or is revoked."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.incident import Incident

USER = settings.AUTH_USER_MODEL


class ShareLink(models.Model):
    """The address is signed over `nonce`; the database alone doesn't give it away, nor does the secret key alone."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, null=True, blank=True, related_name="shares")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True, related_name="shares")
    nonce = models.CharField(max_length=22, unique=True)
    note = models.CharField(max_length=200, blank=True, help_text="Whom it is for.")
    by = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="shares")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.ForeignKey(USER, on_delete=models.PROTECT, null=True, blank=True, related_name="+")

    objects = Seen()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(attempt__isnull=False, incident__isnull=True)
                | models.Q(attempt__isnull=True, incident__isnull=False),
                name="share_has_one_subject",
            ),
        ]

    def __str__(self) -> str:
        return f"share {self.nonce[:4]}"


class ShareOpening(models.Model):
    """Someone opened a share link. One row a reader (address and browser), with a count."""

    share = models.ForeignKey(ShareLink, on_delete=models.CASCADE, related_name="openings")
    reader = models.CharField(max_length=64, help_text="Hash of address and browser.")
    address = models.GenericIPAddressField(null=True, blank=True)
    browser = models.CharField(max_length=200, blank=True)
    times = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField(auto_now_add=True)
    last_at = models.DateTimeField(auto_now=True)

    objects = Seen()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["share", "reader"], name="opening_by_reader")]

    def __str__(self) -> str:
        return f"{self.address} {self.times}"
