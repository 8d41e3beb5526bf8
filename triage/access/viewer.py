"""Role and sight of a user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import JSONObject

from triage.access import sight
from triage.access.roles import Role
from triage.access.sight import EVERYTHING, NOTHING, Sight


@dataclass(frozen=True)
class Viewer:
    """What a user may do and see."""

    role: Role | None
    """None: not signed in, or no longer let in."""
    sight: Sight

    def may(self, needed: Role) -> bool:
        return self.role is not None and self.role.covers(needed)


NOBODY = Viewer(None, NOTHING)


def with_access() -> QuerySet[User]:
    """Users with what `viewer_of` needs, in the same query."""
    from triage.models import TeamReach

    of_teams = TeamReach.objects.filter(team__user=OuterRef("pk")).order_by()
    return User.objects.select_related("person").annotate(
        reaches=ArraySubquery(of_teams.values(found=JSONObject(team="team_id", cluster="cluster_id", queue="queue"))),
        teams_see=Exists(TeamReach.objects.all()),
    )


def viewer_of(user: AbstractBaseUser | AnonymousUser) -> Viewer:
    """Role and sight, as the database has them now; kept on the user for the rest of the request."""
    if not user.is_authenticated or not user.is_active:
        return NOBODY
    known = getattr(user, "_viewer", None)
    if known is None:
        # the user of a session is loaded with what is needed (Backend)
        loaded = user if hasattr(user, "reaches") else with_access().filter(pk=user.pk).first()
        known = _viewer(loaded) if loaded is not None and loaded.is_active else NOBODY
        user._viewer = known  # type: ignore[union-attr]
    return known


def role_of(user: Any) -> Role:
    """Needs `person`. Who may use Django's admin site is an admin here too."""
    if user.is_superuser or user.is_staff:
        return Role.ADMIN
    person = getattr(user, "person", None)
    return Role(person.role) if person is not None else Role(settings.FAULTLINE_DEFAULT_ROLE)


def seen_people() -> QuerySet[User]:
    """Who can be named, mentioned and given work by whoever looks: their own teams, and those who see everything."""
    people = User.objects.filter(is_active=True)
    seen = sight.current()
    if seen.everything:
        return people
    from triage.models import TeamReach

    overseers = TeamReach.objects.filter(cluster__isnull=True).values("team")
    teams = User.groups.through.objects.filter(
        Q(group__in=sorted(seen.teams)) | Q(group__in=overseers), user=OuterRef("pk")
    )
    return people.filter(Exists(teams) | Q(is_superuser=True) | Q(is_staff=True) | Q(person__role=Role.ADMIN))


class Backend(ModelBackend):
    """Passwords of local accounts; the user of a session comes with role and sight."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        """Of the admin site: admins may all of it."""
        return viewer_of(user_obj).may(Role.ADMIN)

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        return viewer_of(user_obj).may(Role.ADMIN)

    def get_user(self, user_id: Any) -> User | None:
        user = with_access().filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None


def _viewer(user: Any) -> Viewer:
    role = role_of(user)
    if role == Role.ADMIN or not user.teams_see:
        return Viewer(role, EVERYTHING)
    return Viewer(role, sight_of(user.reaches))


def sight_of(reaches: Iterable[Mapping[str, Any]]) -> Sight:
    """What somebody sees whose teams reach so far."""
    found = list(reaches)
    if any(reach["cluster"] is None for reach in found):
        return EVERYTHING
    whole = frozenset(reach["cluster"] for reach in found if not reach["queue"])
    return Sight(
        clusters=whole,
        queues=frozenset((r["cluster"], r["queue"]) for r in found if r["queue"] and r["cluster"] not in whole),
        teams=frozenset(reach["team"] for reach in found),
    )
