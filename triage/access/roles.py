"""What people may do. Each role may what the ones before it may."""

from __future__ import annotations

from django.db import models


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    RESPONDER = "responder", "Responder"
    RULE_AUTHOR = "rule_author", "Rule author"
    ADMIN = "admin", "Admin"

    @property
    def level(self) -> int:
        return list(Role).index(self)

    def covers(self, needed: Role) -> bool:
        """Whether this role may what `needed` may."""
        return self.level >= needed.level
