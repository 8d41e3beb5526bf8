"""What people may do and see. A team is one of Django's groups; docs/access.md says how it works."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models

from triage.access.roles import Role
from triage.models.cluster import Cluster


class Person(models.Model):
    """The role of a user. Who has no row has the role that the settings name."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="person")
    role = models.CharField(max_length=16, choices=Role)

    def __str__(self) -> str:
        return f"{self.user_id}: {self.role}"


class TeamReach(models.Model):
    """Something that the people of a team see: everything, a cluster, or a queue of a cluster."""

    team = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="reaches")
    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, null=True, blank=True, related_name="+", help_text="Empty: everything."
    )
    queue = models.CharField(
        max_length=253, blank=True, help_text="Empty: the whole cluster. With * at the end: all that begin so."
    )

    class Meta:
        ordering = ["team", "cluster", "queue"]
        constraints = [
            models.UniqueConstraint(fields=["team", "cluster", "queue"], name="reach_once", nulls_distinct=False),
            models.CheckConstraint(
                condition=models.Q(cluster__isnull=False) | models.Q(queue=""), name="a_queue_is_of_a_cluster"
            ),
        ]

    def __str__(self) -> str:
        return " ".join(filter(None, [str(self.cluster or "everything"), self.queue]))
