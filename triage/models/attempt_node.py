"""AttemptNode: one attempt on one node, so that what ran on a node, and what it is blamed for, is read in order."""

from __future__ import annotations

from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.cluster import Cluster
from triage.models.workload import Workload


class AttemptNode(models.Model):
    """A node that an attempt ran on, or that the answer that stands blames for its failure.

    Kept by the database itself, in the transaction that writes the attempt (faultline_nodes_of says what a row holds);
    no program writes it. `verify` holds it against the attempts.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.DO_NOTHING, db_constraint=False, related_name="on_nodes")
    node = models.CharField(max_length=253)
    cluster = models.ForeignKey(
        Cluster, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    queue = models.CharField(max_length=253)
    workload = models.ForeignKey(
        Workload, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    sort_at = models.DateTimeField(help_text="The attempt's.")
    began_on = models.DateField(help_text="Day (UTC) of its start; where that is unknown, of sort_at.")
    ended_on = models.DateField(help_text="Day (UTC) of sort_at.")
    ran = models.BooleanField(help_text="It is of the allocation.")
    failed = models.BooleanField(help_text="The attempt has a diagnosis, and didn't succeed.")
    blamed = models.BooleanField(help_text="The node is to blame for its failure.")

    objects = Seen()

    class Meta:
        indexes = [
            # all that the page of a node counts, newest first, so that it is read from the index alone
            models.Index(
                fields=["node", "cluster", "-sort_at", "-attempt"],
                include=["queue", "workload", "began_on", "ended_on", "failed", "blamed"],
                name="ran_on_node",
                condition=models.Q(ran=True),
            ),
            models.Index(
                fields=["node", "cluster", "-sort_at", "-attempt"],
                include=["queue"],
                name="blamed_node",
                condition=models.Q(blamed=True),
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt_id} on {self.node}"
