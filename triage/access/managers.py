"""`objects` of every model whose rows belong to clusters and teams."""

from __future__ import annotations

from typing import Any

from django.db import models

from triage.access import sight
from triage.access.visible import narrowed


class Seen(models.Manager):
    """Only what is seen by whoever looks right now."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return narrowed(super().get_queryset(), sight.current())
