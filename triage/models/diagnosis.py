"""Diagnosis: the answer for one attempt under one ruleset. Never edited, only superseded."""

from __future__ import annotations

from typing import Any

from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt


class NodeRole(models.TextChoices):
    """What part a node had in a failure."""

    CAUSE = "cause", "Cause"
    SUSPECT = "suspect", "Suspect"
    AFFECTED = "affected", "Affected"


class Diagnosis(models.Model):
    """The whole contract `faultline.diagnosis/1`, and the columns that lists filter on.

    The same attempt, ruleset, engine and evidence give the same diagnosis, so there is one row for them. A database
    trigger refuses to change what a row says.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="diagnoses")
    supersedes = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="superseded_by"
    )
    contract = models.JSONField()
    outcome = models.CharField(max_length=32)
    domain = models.CharField(max_length=32)
    sub_domain = models.CharField(max_length=32)
    title = models.CharField(max_length=500)
    rule = models.CharField(max_length=200, blank=True, help_text="Of the root cause; empty when there is none.")
    fingerprint = models.CharField(max_length=200)
    ruleset = models.CharField(max_length=80)
    engine_version = models.CharField(max_length=40)
    evidence_hash = models.CharField(max_length=64, help_text="SHA-256 over facts, streams and what was missing.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name_plural = "diagnoses"
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "ruleset", "engine_version", "evidence_hash"], name="diagnosis_identity"
            ),
        ]
        indexes = [
            models.Index(fields=["domain", "sub_domain"], name="diagnosis_by_domain"),
            models.Index(fields=["outcome"], name="diagnosis_by_outcome"),
            models.Index(fields=["rule", "-created_at"], name="diagnosis_by_rule"),
            models.Index(fields=["fingerprint", "-created_at"], name="diagnosis_by_fingerprint"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def root_cause(self) -> dict[str, Any] | None:
        """The contract's root_cause, or None."""
        return self.contract.get("root_cause")

    @property
    def evidence(self) -> dict[str, dict[str, Any]]:
        """The contract's evidence by id, in the contract's order."""
        return {item["id"]: item for item in self.contract.get("evidence", [])}


class DiagnosisNode(models.Model):
    """A node that a diagnosis names, with its part in the failure."""

    diagnosis = models.ForeignKey(Diagnosis, on_delete=models.CASCADE, related_name="nodes")
    node = models.CharField(max_length=253)
    role = models.CharField(max_length=16, choices=NodeRole)
    first_at = models.DateTimeField(null=True, blank=True)

    objects = Seen()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["diagnosis", "node"], name="diagnosis_node_identity")]
        indexes = [models.Index(fields=["node", "role", "diagnosis"], name="diagnosis_node_by_name")]

    def __str__(self) -> str:
        return f"{self.node} ({self.role})"
