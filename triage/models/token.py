"""ApiToken: what a program shows instead of a session. Only its hash is kept."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone


class Scope(models.TextChoices):
    """What a token may do. None of them includes another."""

    INGEST = "ingest", "Create attempts, send observations and facts, ask for diagnoses"
    READ = "read", "Read everything"
    WRITE = "write", "Say what people say: verdicts, comments, incidents"


class ApiToken(models.Model):
    """Acts for `user`, within its scopes, until it expires or is revoked."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100, help_text="What it is for.")
    prefix = models.CharField(max_length=16, help_text="Its first characters, to recognise it by.")
    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the token, hexadecimal.")
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope))
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"

    @property
    def is_valid(self) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())


class IdempotentCall(models.Model):
    """The answer to a call that named an Idempotency-Key, so that the call repeated is answered and not done again."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    call = models.CharField(max_length=64, help_text="SHA-256 over method, path, query and body.")
    status = models.PositiveSmallIntegerField(null=True, help_text="Empty while the first call is still at work.")
    answer = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="idempotent_call_once")]
        indexes = [models.Index(fields=["created_at"], name="idempotent_call_by_age")]

    def __str__(self) -> str:
        return self.key
