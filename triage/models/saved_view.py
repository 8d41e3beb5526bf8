"""SavedView: a search of the failures that somebody wants to come back to, alone or with others."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models

USER = settings.AUTH_USER_MODEL


class Audience(models.TextChoices):
    """Who sees a view."""

    ME = "me", "Only me"
    TEAM = "team", "A team of mine"
    ALL = "all", "Everybody"


class SavedView(models.Model):
    """A search with its order and columns. `audience` says who sees it. Its owner may change it, and everybody of the
    team that it is shared with.
    """

    owner = models.ForeignKey(USER, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=2000, blank=True, help_text="In the language of the search box.")
    sort = models.CharField(max_length=16, blank=True)
    columns = models.CharField(max_length=200, blank=True, help_text="Names, parted by commas.")
    audience = models.CharField(max_length=8, choices=Audience, default=Audience.ME)
    team = models.ForeignKey(Group, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    opens_for_team = models.BooleanField(
        default=False, help_text="The list of who is in the team and chose nothing else opens with it."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="Kept, so that it can be brought back.")

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=models.Q(deleted_at__isnull=True), name="saved_view_name"
            ),
            models.UniqueConstraint(
                fields=["team"],
                condition=models.Q(opens_for_team=True, deleted_at__isnull=True),
                name="saved_view_opens_team",
            ),
            models.CheckConstraint(
                condition=models.Q(audience="team", team__isnull=False) | ~models.Q(audience="team"),
                name="saved_view_team",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DefaultView(models.Model):
    """What somebody's list of failures opens with, as they chose it."""

    user = models.OneToOneField(USER, on_delete=models.CASCADE, related_name="default_view")
    view = models.ForeignKey(
        SavedView, on_delete=models.CASCADE, null=True, blank=True, related_name="+", help_text="Empty: all failures."
    )

    def __str__(self) -> str:
        return f"{self.view_id} of {self.user_id}"
