"""Comments on attempts and incidents, what they said before, and who is told about them."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.incident import Incident

USER = settings.AUTH_USER_MODEL


class Comment(models.Model):
    """Markdown on one attempt or one incident. An edit leaves the old text as a revision; a delete empties the text."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, null=True, blank=True, related_name="comments")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True, related_name="comments")
    author = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="comments")
    text = models.TextField(blank=True)
    quotes = models.JSONField(default=list, help_text="Lines quoted from streams: triage.services.quotes.Quote.")
    mentions = ArrayField(models.CharField(max_length=150), default=list, blank=True, help_text="Names of users.")
    form_key = models.UUIDField(
        null=True, blank=True, unique=True, help_text="Of the form it came from: sent twice, it is kept once."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    edited_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = Seen()

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(attempt__isnull=False, incident__isnull=True)
                | models.Q(attempt__isnull=True, incident__isnull=False),
                name="comment_has_one_subject",
            ),
        ]

    def __str__(self) -> str:
        return self.text[:60]


class CommentRevision(models.Model):
    """What a comment said before it was edited."""

    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, related_name="revisions")
    text = models.TextField()
    until = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.text[:60]


class Notification(models.Model):
    """Something a person should look at: a comment mentions them, or an incident was given to them."""

    user = models.ForeignKey(USER, on_delete=models.CASCADE, related_name="notifications")
    actor = models.ForeignKey(USER, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    kind = models.CharField(max_length=32, choices=[("mention", "Mentioned you"), ("assigned", "Gave you")])
    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, null=True, blank=True, related_name="notifications")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    read_at = models.DateTimeField(null=True, blank=True)

    objects = Seen()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "comment"], name="told_once_of_a_comment"),
        ]
        indexes = [
            models.Index(
                fields=["user", "-created_at"], name="notification_unread", condition=models.Q(read_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} for {self.user_id}"
