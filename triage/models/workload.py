"""Workload: a job as its owner knows it."""

from django.db import models

from triage.access.managers import Seen
from triage.models.cluster import Cluster


class Workload(models.Model):
    """One job of one scheduler; its executions are attempts."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="workloads")
    scheduler = models.CharField(max_length=32, help_text="slurm, kueue or static.")
    workload_id = models.CharField(max_length=253, help_text="The scheduler's own id, e.g. 48213 or nlp/78090.")
    name = models.CharField(max_length=253, blank=True)
    user = models.CharField(max_length=253, blank=True)
    queue = models.CharField(max_length=253, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "scheduler", "workload_id"], name="workload_identity"),
        ]
        indexes = [models.Index(fields=["workload_id"], name="workload_by_id")]

    def __str__(self) -> str:
        return f"{self.name} {self.workload_id}".strip()
