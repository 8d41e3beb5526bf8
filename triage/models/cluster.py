"""Cluster: a set of nodes under one scheduler."""

from django.db import models

from triage.access.managers import Seen


class Cluster(models.Model):
    """Named once, by the first attempt that names it or by an operator."""

    name = models.CharField(
        max_length=200, unique=True, help_text="Empty for attempts that name no cluster.", blank=True
    )
    time_zone = models.CharField(
        max_length=64, default="UTC", help_text="IANA name; the zone of log lines without one."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name or "(no cluster)"
