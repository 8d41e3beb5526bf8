"""Gpu: one GPU of a node, as evidence last told of it."""

from django.db import models

from triage.access.managers import Seen
from triage.models.cluster import Cluster


class Gpu(models.Model):
    """By its place. When another one is put there, the row says the new one and since when."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="gpus")
    node = models.CharField(max_length=253)
    bus = models.CharField(max_length=16, blank=True, help_text="PCI bus id; empty for what holds of all of a node.")
    number = models.PositiveSmallIntegerField(null=True, blank=True, help_text="As nvidia-smi counts.")
    uuid = models.CharField(max_length=64, blank=True)
    serial = models.CharField(max_length=32, blank=True)
    model = models.CharField(max_length=80, blank=True)
    told_at = models.DateTimeField(help_text="End of the attempt whose evidence told it last.")
    changed_at = models.DateTimeField(null=True, blank=True, help_text="When another GPU was first seen in this place.")

    objects = Seen()

    class Meta:
        ordering = ["node", "bus"]
        constraints = [models.UniqueConstraint(fields=["cluster", "node", "bus"], name="gpu_identity")]

    def __str__(self) -> str:
        return f"{self.node} {self.bus}".strip()
