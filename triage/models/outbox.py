"""What is told to the outside: over which channels, by which routes, and what became of each delivery."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.incident import Incident, Severity
from triage.models.timeline import TimelineEvent

USER = settings.AUTH_USER_MODEL


class ChannelKind(models.TextChoices):
    """How a channel is reached; `triage.channels` has one module for each."""

    SLACK = "slack", "Slack"
    EMAIL = "email", "E-mail"
    WEBHOOK = "webhook", "Signed webhook"
    ALERTMANAGER = "alertmanager", "Alertmanager"
    APPRISE = "apprise", "Apprise"


class News(models.TextChoices):
    """What can be told."""

    OPENED = "opened", "A failure of a new kind"
    REPEATED = "repeated", "The same failure again"
    REGRESSED = "regressed", "It came back after it was settled"
    SETTLED = "settled", "An incident is mitigated or resolved"
    UNATTRIBUTED = "unattributed", "A failure without a known cause"
    TEST = "test", "A test"


class Channel(models.Model):
    """Where something can be told. `config` holds plain values and references to secrets, never a secret."""

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=16, choices=ChannelKind)
    config = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = Seen()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Route(models.Model):
    """What goes over a channel: news of these kinds about attempts that the query finds."""

    name = models.CharField(max_length=80, unique=True)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="routes")
    news = ArrayField(models.CharField(max_length=16, choices=News), help_text="Kinds of news.")
    query = models.CharField(max_length=2000, blank=True, help_text="In the language of the search box; empty: all.")
    least_attempts = models.PositiveIntegerField(
        default=1, help_text="An incident is told of once it has so many attempts."
    )
    severity = models.PositiveSmallIntegerField(
        choices=Severity, null=True, blank=True, help_text="Only incidents of this severity or worse."
    )
    quiet_minutes = models.PositiveIntegerField(
        default=15, help_text="Repeats within so many minutes are told of together."
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = Seen()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Announcement(models.Model):
    """An event that some route may want; removed once the deliveries for it are made."""

    event = models.OneToOneField(TimelineEvent, on_delete=models.CASCADE, related_name="+")

    objects = Seen()

    def __str__(self) -> str:
        return f"of event {self.event_id}"


class DeliveryState(models.TextChoices):
    """Where a delivery is."""

    WAITING = "waiting", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Failed"
    DROPPED = "dropped", "Dropped"


class Delivery(models.Model):
    """One message over one channel. What is told to one channel about one thread goes out in order."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    route = models.ForeignKey(Route, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    event = models.ForeignKey(
        TimelineEvent, on_delete=models.CASCADE, null=True, blank=True, related_name="+", help_text="None for a test."
    )
    news = models.CharField(max_length=16, choices=News)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries")
    thread = models.CharField(max_length=64, help_text="What belongs together: incident-118, attempt-4711.")
    covers = models.PositiveIntegerField(default=1, help_text="Of how many attempts it tells.")
    message = models.JSONField(help_text="triage.channels.base.Message, as it goes out.")
    again = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", help_text="What this sends again."
    )
    asked_by = models.ForeignKey(USER, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    state = models.CharField(max_length=8, choices=DeliveryState, default=DeliveryState.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(db_default=Now())
    lease = models.UUIDField(null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)
    trouble = models.CharField(max_length=500, blank=True, help_text="Why the last try failed.")
    receipt = models.CharField(max_length=500, blank=True, help_text="The receiver's name for the message.")
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)

    objects = Seen()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["channel", "event"],
                name="delivery_once",
                condition=models.Q(event__isnull=False, again__isnull=True),
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="delivery_due", condition=models.Q(state="waiting")),
            models.Index(fields=["channel", "thread", "id"], name="delivery_by_thread"),
        ]

    def __str__(self) -> str:
        return f"{self.news} over {self.channel_id}: {self.state}"
