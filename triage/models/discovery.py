"""Discovery: how far the searches for attempts have come, what runs now, and what was seen of objects that vanish."""

from django.contrib.postgres.indexes import GinIndex
from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt


class Discovery(models.Model):
    """One row a source that is searched. Whoever holds the lease searches; the cursor survives restarts."""

    connector = models.CharField(max_length=64)
    cluster = models.CharField(max_length=200, blank=True)
    cursor = models.JSONField(default=dict)
    lease = models.UUIDField(null=True, blank=True, help_text="Names the worker that searches right now.")
    heartbeat_at = models.DateTimeField(null=True, blank=True, help_text="By the database's clock.")
    last_run_at = models.DateTimeField(null=True, blank=True)
    answered_at = models.DateTimeField(
        null=True, blank=True, help_text="When the source last answered a search to its end."
    )
    last_error = models.CharField(max_length=1000, blank=True)
    last_found = models.PositiveIntegerField(default=0, help_text="Attempts that the last search told of.")

    objects = Seen()

    class Meta:
        verbose_name_plural = "discoveries"
        constraints = [models.UniqueConstraint(fields=["connector", "cluster"], name="discovery_identity")]

    def __str__(self) -> str:
        return f"{self.connector} {self.cluster}".strip()


class RunningAttempt(models.Model):
    """An attempt that has not ended. It is looked at now and then, and becomes an Attempt when it ends or hangs."""

    cluster = models.CharField(max_length=200)
    connector = models.CharField(max_length=64, help_text="Which found it.")
    workload_id = models.CharField(max_length=253)
    number = models.PositiveIntegerField(default=1)
    ref = models.CharField(max_length=1024)
    facts = models.JSONField(help_text="engine.model.Attempt")
    found_at = models.DateTimeField(auto_now_add=True)
    look_at = models.DateTimeField(help_text="When it is looked at next.")
    outcome = models.CharField(max_length=32, blank=True, help_text="Of the last look.")

    objects = Seen()

    class Meta:
        ordering = ["look_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "connector", "workload_id", "number"], name="running_identity")
        ]
        indexes = [models.Index(fields=["look_at"], name="running_by_look")]

    def __str__(self) -> str:
        return f"{self.workload_id}, attempt {self.number}"


class Recollection(models.Model):
    """When an attempt's sources are asked again: once for what arrives late, and after failures."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="recollection")
    due_at = models.DateTimeField(null=True, blank=True, help_text="Empty: not any more.")
    rounds = models.PositiveSmallIntegerField(default=0, help_text="How often they were asked again.")
    delay = models.FloatField(default=900.0, help_text="Seconds, of the cluster's configuration.")

    objects = Seen()

    class Meta:
        indexes = [
            models.Index(fields=["due_at"], name="recollection_due", condition=models.Q(due_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id} at {self.due_at}"


class SightedObject(models.Model):
    """What was seen last of a pod or workload (connectors.kube.sightings.Sighting). Pods vanish; this stays a while."""

    cluster = models.CharField(max_length=200)
    kind = models.CharField(max_length=32)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=80)
    node = models.CharField(max_length=253, blank=True)
    labels = models.JSONField(default=dict)
    object = models.JSONField(default=dict)
    seen_at = models.DateTimeField()
    deleted = models.BooleanField(default=False)

    objects = Seen()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "kind", "uid"], name="sighting_identity")]
        indexes = [
            GinIndex(fields=["labels"], name="sighting_by_labels", opclasses=["jsonb_path_ops"]),
            models.Index(fields=["seen_at"], name="sighting_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
