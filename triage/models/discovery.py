"""Discovery: how far a connector's search for attempts has come."""

from django.db import models


class Discovery(models.Model):
    """One row a source that is searched; its cursor survives restarts and keeps two workers from doubling."""

    connector = models.CharField(max_length=64)
    cluster = models.CharField(max_length=200, blank=True)
    cursor = models.JSONField(default=dict)
    last_run_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=1000, blank=True)

    class Meta:
        verbose_name_plural = "discoveries"
        constraints = [models.UniqueConstraint(fields=["connector", "cluster"], name="discovery_identity")]

    def __str__(self) -> str:
        return f"{self.connector} {self.cluster}".strip()
