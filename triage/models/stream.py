"""Stream: one source of lines or samples of an attempt, kept in the blob store."""

from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.collection import Collection


class Stream(models.Model):
    """Its bytes are in the blob store under `blob`; retention may prune them, then `blob` is empty and evidence
    stays.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="streams")
    collection = models.ForeignKey(Collection, on_delete=models.SET_NULL, null=True, related_name="streams")
    name = models.CharField(max_length=1024, help_text="Path inside the bundle, e.g. syslog/node-02.log.")
    source = models.CharField(max_length=32, help_text="applog, syslog, scheduler, metric or flight_recorder.")
    node = models.CharField(max_length=253, null=True, blank=True)
    rank = models.PositiveIntegerField(null=True, blank=True)
    size = models.PositiveBigIntegerField(help_text="Bytes, decompressed.")
    lines = models.PositiveBigIntegerField()
    first_at = models.DateTimeField(null=True, blank=True, help_text="Time of the first line that has one.")
    last_at = models.DateTimeField(null=True, blank=True)
    masked = models.PositiveIntegerField(default=0, help_text="Secrets masked before the stream was stored.")
    sha256 = models.CharField(max_length=64, help_text="Of the stored (masked) bytes.")
    blob = models.CharField(max_length=200, blank=True, help_text="Key in the blob store; empty once pruned.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["source", "name"]
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="stream_identity")]
        indexes = [models.Index(fields=["blob"], name="stream_by_blob")]

    def __str__(self) -> str:
        return self.name
