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
    """A search with its order and columns. Its owner may change it; who else sees it, `audience` says."""

    owner = models.ForeignKey(USER, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=2000, blank=True, help_text="In the language of the search box.")
    sort = models.CharField(max_length=16, blank=True)
    columns = models.CharField(max_length=200, blank=True, help_text="Names, parted by commas.")
    audience = models.CharField(max_length=8, choices=Audience, default=Audience.ME)
    team = models.ForeignKey(Group, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="saved_view_name"),
            models.CheckConstraint(
                condition=models.Q(audience="team", team__isnull=False) | ~models.Q(audience="team"),
                name="saved_view_team",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DefaultView(models.Model):
    """The view that somebody's list of failures opens with."""

    user = models.OneToOneField(USER, on_delete=models.CASCADE, related_name="default_view")
    view = models.ForeignKey(SavedView, on_delete=models.CASCADE, related_name="+")

    def __str__(self) -> str:
        return f"{self.view_id} of {self.user_id}"
