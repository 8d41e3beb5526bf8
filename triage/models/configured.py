"""Clusters and sources as people set them up on pages, and what became of asking their sources once."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from triage.access.managers import Seen

USER = settings.AUTH_USER_MODEL


class ConfiguredCluster(models.Model):
    """A cluster's own settings. Empty ones are not set: the file's, or the defaults, hold."""

    name = models.CharField(max_length=40, unique=True)
    time_zone = models.CharField(max_length=64, blank=True)
    recollect_after = models.CharField(max_length=20, blank=True)
    live = models.CharField(max_length=20, blank=True)
    changed_by = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)

    objects = Seen()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ConfiguredSource(models.Model):
    """A source: its keys as TOML, as they were typed. Holds references to secrets, never a secret."""

    cluster = models.ForeignKey(ConfiguredCluster, on_delete=models.CASCADE, related_name="sources")
    name = models.CharField(max_length=20)
    kind = models.CharField(max_length=16)
    text = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=1, help_text="Grows with each change.")
    changed_by = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)

    objects = Seen()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="configured_source_identity")]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class ClusterCheck(models.Model):
    """One round of asking every source of a cluster once. Only the newest of a cluster is kept."""

    cluster = models.CharField(max_length=40, unique=True)
    asked_by = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField()

    objects = Seen()

    class Meta:
        ordering = ["cluster"]

    def __str__(self) -> str:
        return f"{self.cluster} at {self.asked_at}"


class CheckState(models.TextChoices):
    """How far the asking of one source is."""

    WAITING = "waiting", "Waiting for a worker"
    ASKING = "asking", "Asking"
    DONE = "done", "Done"


class SourceCheck(models.Model):
    """One source of a check; `report` is a connectors.base.CollectionReport."""

    check_of = models.ForeignKey(ClusterCheck, on_delete=models.CASCADE, related_name="sources")
    source = models.CharField(max_length=20)
    kind = models.CharField(max_length=16)
    state = models.CharField(max_length=16, choices=CheckState, default=CheckState.WAITING)
    began_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict)

    objects = Seen()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["check_of", "source"], name="source_check_identity")]

    def __str__(self) -> str:
        return f"{self.source}: {self.state}"
