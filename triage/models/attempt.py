"""Attempt: one execution of a workload, and how far its triage is."""

from __future__ import annotations

from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models.functions import Cast, Coalesce, Extract, Greatest

from triage.access.managers import Seen
from triage.models.cluster import Cluster
from triage.models.workload import Workload


class TriageState(models.TextChoices):
    """How far the triage of an attempt is. The database is the truth; a message in the broker is only a hint."""

    PENDING = "pending", "Waiting for a worker"
    COLLECTING = "collecting", "Collecting"
    DIAGNOSING = "diagnosing", "Diagnosing"
    DONE = "done", "Diagnosed"
    FAILED = "failed", "Triage failed"


class VerdictStatus(models.TextChoices):
    """What people have said of the diagnosis of an attempt."""

    UNCONFIRMED = "unconfirmed", "Unconfirmed"
    CONFIRMED = "confirmed", "Confirmed"
    CORRECTED = "corrected", "Corrected"
    DISAGREES = "disagrees", "Engine now disagrees"


_ELAPSED = Extract(
    models.ExpressionWrapper(models.F("ended_at") - models.F("started_at"), output_field=models.DurationField()),
    "epoch",
)
_GPU_HOURS = (
    Cast(models.Func("nodes", function="CARDINALITY", output_field=models.IntegerField()), models.FloatField())
    * models.F("gpus_per_node")
    * Greatest(Cast(_ELAPSED, models.FloatField()), 0.0)
    / 3600.0
)

FAILURE = ~models.Q(outcome="succeeded")
"""What lists of failures show, also what is not diagnosed yet; in the words of the partial indexes."""
COUNTED_OF_ONE = ("domain", "outcome", "triage_state", "verdict_status", "cluster", "lost_gpu_hours", "blames")
UNFINISHED = (TriageState.PENDING, TriageState.COLLECTING, TriageState.DIAGNOSING)


class Attempt(models.Model):
    """One execution of a workload. Identity: cluster, scheduler, workload id, number.

    `cluster`, `user` and `queue` repeat the workload's; `outcome`, `rule`, `matched` and `missing` the current
    diagnosis's; `domain`, `sub_domain` and `blamed_nodes` the answer that stands: a person's verdict, else the current
    diagnosis. So lists filter, count and page on one table.
    """

    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="attempts")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="attempts")
    user = models.CharField(max_length=253, blank=True)
    queue = models.CharField(max_length=253, blank=True)
    number = models.PositiveIntegerField(default=1)

    state = models.CharField(max_length=128, blank=True, help_text="The scheduler's own word, e.g. FAILED.")
    exit_code = models.CharField(max_length=64, null=True, blank=True, help_text="As the scheduler gives it, e.g. 1:0.")
    reason = models.CharField(max_length=512, null=True, blank=True, help_text="The scheduler's reason.")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    nodes = ArrayField(models.CharField(max_length=253), default=list, blank=True, help_text="The allocation.")
    gpus_per_node = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    sort_at = models.GeneratedField(
        expression=Coalesce("ended_at", "started_at", "created_at"),
        output_field=models.DateTimeField(),
        db_persist=True,
        help_text="What lists are ordered by: the end; else the start; else when it became known.",
    )
    search = models.TextField(blank=True, editable=False, help_text="Lower-case words that a text search looks into.")

    diagnosis = models.ForeignKey(
        "triage.Diagnosis",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The current one.",
    )
    outcome = models.CharField(max_length=32, blank=True)
    rule = models.CharField(max_length=200, blank=True, help_text="Of the root cause; empty when there is none.")
    matched = ArrayField(
        models.CharField(max_length=200),
        default=list,
        blank=True,
        help_text="Every rule that the diagnosis names: as root, rival, symptom or in its evidence.",
    )
    missing = ArrayField(
        models.CharField(max_length=32), default=list, blank=True, help_text="Sources that were not complete."
    )
    lost_gpu_hours = models.GeneratedField(
        expression=models.Case(
            models.When(outcome="succeeded", then=models.Value(0.0)), default=Coalesce(_GPU_HOURS, 0.0)
        ),
        output_field=models.FloatField(),
        db_persist=True,
        help_text="Nodes x GPUs a node x elapsed hours of an attempt that didn't succeed; 0 where unknown.",
    )
    domain = models.CharField(max_length=32, blank=True)
    sub_domain = models.CharField(max_length=32, blank=True)
    blamed_nodes = ArrayField(
        models.CharField(max_length=253),
        default=list,
        blank=True,
        help_text="Causes and suspects of the answer that stands.",
    )
    blames = models.GeneratedField(
        expression=models.Case(models.When(blamed_nodes=[], then=models.Value(False)), default=models.Value(True)),
        output_field=models.BooleanField(),
        db_persist=True,
        help_text="Whether any node is to blame.",
    )

    verdict = models.ForeignKey(
        "triage.Verdict",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="The one that stands.",
    )
    verdict_status = models.CharField(max_length=16, choices=VerdictStatus, default=VerdictStatus.UNCONFIRMED)

    triage_state = models.CharField(max_length=16, choices=TriageState, default=TriageState.PENDING)
    triage_reason = models.CharField(max_length=1000, blank=True, help_text="Why triage failed, in one line.")
    triage_run = models.PositiveIntegerField(
        default=0, help_text="Grows with each request; work of an older run is dropped."
    )
    triage_tries = models.PositiveSmallIntegerField(
        default=0, help_text="How often a worker began to diagnose in this run."
    )
    triage_requested_at = models.DateTimeField(null=True, blank=True)
    triage_queued_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when it waits; of what nobody asked for: until when."
    )
    triage_rank = models.FloatField(
        null=True, blank=True, help_text="What waits is taken by this, the greatest first; empty while it is not due."
    )
    triage_started_at = models.DateTimeField(null=True, blank=True)
    triage_heartbeat_at = models.DateTimeField(null=True, blank=True)
    triage_finished_at = models.DateTimeField(null=True, blank=True)
    triage_lease = models.UUIDField(null=True, blank=True, help_text="Names the worker that diagnoses right now.")

    objects = Seen()

    class Meta:
        ordering = ["-sort_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["workload", "number"], name="attempt_identity")]
        indexes = [
            models.Index(fields=["-sort_at", "-id"], name="attempt_newest"),
            models.Index(fields=["domain", "sub_domain", "-sort_at", "-id"], name="attempt_by_domain"),
            models.Index(fields=["outcome", "-sort_at", "-id"], name="attempt_by_outcome"),
            models.Index(fields=["cluster", "-sort_at", "-id"], name="attempt_by_cluster"),
            # with the outcome, so that successes are counted in the index alone
            models.Index(fields=["user", "-sort_at", "-id"], include=["outcome"], name="attempt_of_user"),
            models.Index(fields=["queue", "-sort_at", "-id"], include=["outcome"], name="attempt_of_queue"),
            models.Index(fields=["-lost_gpu_hours", "-id"], name="attempt_by_loss"),
            models.Index(
                fields=["rule", "sort_at"], name="attempt_by_rule", opclasses=["varchar_pattern_ops", "timestamptz_ops"]
            ),
            models.Index(fields=["-sort_at", "-id"], name="failure_newest", condition=FAILURE),
            models.Index(
                fields=["sort_at"],
                include=["cluster", "user", "queue"],
                name="success_counts",
                condition=models.Q(outcome="succeeded"),
            ),
            models.Index(fields=["domain", "-sort_at", "-id"], name="failure_by_domain", condition=FAILURE),
            models.Index(fields=["-sort_at"], name="failure_with_node", condition=FAILURE & models.Q(blames=True)),
            # all that facets and insights count, so that they are counted in the index alone
            models.Index(
                fields=["sort_at"],
                include=[
                    "domain",
                    "sub_domain",
                    "outcome",
                    "triage_state",
                    "verdict_status",
                    "cluster",
                    "user",
                    "queue",
                    "lost_gpu_hours",
                    "blames",
                ],
                name="failure_counts",
                condition=FAILURE,
            ),
            # the same of one user, one queue or one rule, which may have few of very many failures
            models.Index(
                fields=["user", "-sort_at", "-id"], include=COUNTED_OF_ONE, name="failure_of_user", condition=FAILURE
            ),
            models.Index(
                fields=["queue", "-sort_at", "-id"],
                include=[*COUNTED_OF_ONE, "user"],
                name="failure_of_queue",
                condition=FAILURE,
            ),
            models.Index(
                fields=["rule", "-sort_at", "-id"],
                include=[*COUNTED_OF_ONE, "user"],
                name="failure_of_rule",
                opclasses=["varchar_pattern_ops", "timestamptz_ops", "int8_ops"],
                condition=FAILURE,
            ),
            models.Index(fields=["verdict_status", "-sort_at", "-id"], name="attempt_by_verdict"),
            GinIndex(fields=["nodes"], name="attempt_by_node"),
            GinIndex(fields=["blamed_nodes"], name="attempt_by_blamed_node"),
            GinIndex(fields=["matched"], name="attempt_by_matched_rule"),
            GinIndex(fields=["missing"], name="attempt_by_missing"),
            GinIndex(OpClass("search", name="gin_trgm_ops"), name="attempt_by_text"),
            models.Index(
                fields=["triage_state", "triage_queued_at"],
                name="attempt_unfinished",
                condition=models.Q(triage_state__in=["pending", "collecting", "diagnosing"]),
            ),
            # whose turn it is: what waits of a cluster, by its rank, and what was begun of it
            models.Index(
                fields=["cluster", "triage_rank"],
                name="attempt_waiting",
                condition=models.Q(triage_state="pending", triage_rank__isnull=False),
            ),
            models.Index(
                fields=["cluster", "triage_state"],
                name="attempt_begun",
                condition=models.Q(triage_state__in=["collecting", "diagnosing"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workload}, attempt {self.number}"

    @property
    def is_triaged(self) -> bool:
        """Whether triage has come to an end, good or bad."""
        return self.triage_state in (TriageState.DONE, TriageState.FAILED)

    @property
    def title(self) -> str:
        """The answer that stands, in one line; empty while there is none. Needs `verdict` and `diagnosis`."""
        if self.verdict is not None:
            return self.verdict.title
        return self.diagnosis.title if self.diagnosis is not None else ""

    @property
    def suspects(self) -> list[str]:
        """Which of the blamed nodes are only suspect, in the engine's view. Needs `diagnosis.blamed` of a list."""
        if self.verdict is not None or self.diagnosis is None:
            return []
        return [named.node for named in getattr(self.diagnosis, "blamed", ()) if named.role == "suspect"]

    @property
    def elapsed_seconds(self) -> float | None:
        """Seconds from start to end; None unless both are known."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, (self.ended_at - self.started_at).total_seconds())

    @property
    def gpu_hours(self) -> float | None:
        """Nodes x GPUs a node x elapsed hours; None when one of them is unknown."""
        elapsed = self.elapsed_seconds
        if elapsed is None or not self.gpus_per_node or not self.nodes:
            return None
        return len(self.nodes) * self.gpus_per_node * elapsed / 3600.0

    @property
    def when(self) -> datetime:
        """The time that lists show: end, else start, else when it became known."""
        return self.ended_at or self.started_at or self.created_at
