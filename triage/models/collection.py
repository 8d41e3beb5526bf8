"""Collection: where an attempt's evidence comes from, and how the last gathering went."""

from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt


class CollectionState(models.TextChoices):
    """How far one connector is with one attempt."""

    PENDING = "pending", "Waiting"
    RUNNING = "running", "Collecting"
    DONE = "done", "Done"


class Collection(models.Model):
    """One source of one attempt. A source that failed is done too: `reports` say what was missing and why."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="collections")
    connector = models.CharField(max_length=64, help_text="Name in the registry, e.g. files.")
    ref = models.CharField(
        max_length=1024, blank=True, help_text="The connector's own handle, e.g. spool:<sha256>.tar.zst."
    )
    label = models.CharField(
        max_length=512, blank=True, help_text="What people called it, e.g. the uploaded file's name."
    )
    content_key = models.CharField(max_length=128, blank=True, help_text="Changes when the source's content changes.")

    state = models.CharField(max_length=16, choices=CollectionState, default=CollectionState.PENDING)
    tries = models.PositiveSmallIntegerField(default=0)
    lease = models.UUIDField(null=True, blank=True)
    queued_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    streams_done = models.PositiveIntegerField(default=0, help_text="Progress while it runs.")
    bytes_done = models.PositiveBigIntegerField(default=0)
    reports = models.JSONField(default=list, help_text="connectors.base.CollectionReport, one a source.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["attempt", "connector", "ref"], name="collection_identity")]
        indexes = [
            models.Index(
                fields=["state", "queued_at"],
                name="collection_unfinished",
                condition=models.Q(state__in=["pending", "running"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.connector} {self.label or self.ref}".strip()
