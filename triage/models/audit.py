"""AuditEntry: who changed what. Written by the database itself, which refuses to change or remove an entry."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class AuditEntry(models.Model):
    """One change. People are named by number and name, so that an entry outlives its account."""

    at = models.DateTimeField(db_default=Now())
    actor = models.BigIntegerField(null=True, blank=True, help_text="Number of the user; empty: the system.")
    actor_name = models.CharField(max_length=150, blank=True)
    token = models.BigIntegerField(null=True, blank=True, help_text="Number of the API token that was used.")
    address = models.GenericIPAddressField(null=True, blank=True)
    action = models.CharField(max_length=64, help_text="created, changed, deleted, signed in, or the kind of an event.")
    subject = models.CharField(max_length=64, help_text="What kind of thing it is.")
    subject_id = models.CharField(max_length=300, blank=True)
    name = models.CharField(max_length=300, blank=True, help_text="What people call it.")
    changes = models.JSONField(default=dict, help_text="Key -> [before, after]; or what an event holds.")

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["actor_name", "-id"], name="audit_by_actor"),
            models.Index(fields=["subject", "subject_id", "-id"], name="audit_by_subject"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name or 'system'}: {self.action} {self.subject} {self.subject_id}".strip()
