"""Searches that people keep, share and begin with."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from triage.access.roles import Role
from triage.access.sight import current
from triage.access.viewer import seen_people, viewer_of
from triage.models import Audience, DefaultView, SavedView
from triage.selectors.query import parse
from triage.services.facts import short

MAX_VIEWS = 50


class ViewRefused(ValueError):
    """A view that can't be kept; `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def visible_views(user: User) -> QuerySet[SavedView]:
    """The views that somebody sees: their own, those of their teams, those for everybody of people whom they see."""
    teams = Q(audience=Audience.TEAM, team__in=user.groups.all())
    everybodys = Q(audience=Audience.ALL)
    if not current().everything:
        everybodys &= Q(owner__in=seen_people())
    return SavedView.objects.filter(Q(owner=user) | teams | everybodys, deleted_at=None)


def may_change(user: User, view: SavedView, teams: Collection[int]) -> bool:
    """Whether somebody in these teams may change a view: their own, and as a responder those of their teams."""
    of_team = view.audience == Audience.TEAM and view.team_id in teams
    return view.owner_id == user.pk or (of_team and viewer_of(user).may(Role.RESPONDER))


@transaction.atomic
def save_view(
    owner: User,
    name: str,
    query: str,
    *,
    sort: str = "",
    columns: str = "",
    audience: str = Audience.ME,
    team_id: int | None = None,
) -> tuple[SavedView, dict[str, Any] | None]:
    """Keeps a search under a name. One of the same owner with that name is replaced; what it held is returned too, for
    `restore_view`. Raises ViewRefused.
    """
    name = _name(name)
    read = parse(query)
    if read.errors:
        raise ViewRefused("query", read.errors[0])
    team = _team(owner, audience, team_id)
    User.objects.select_for_update().get(pk=owner.pk)  # one at a time for each owner
    kept = SavedView.objects.filter(owner=owner, deleted_at=None)
    known = kept.filter(name=name).first()
    if known is None and kept.count() >= MAX_VIEWS:
        raise ViewRefused("name", f"{MAX_VIEWS} views are the most. Delete one first.")
    before = _values(known) if known is not None else None
    view = known or SavedView(owner=owner, name=name)
    view.query, view.sort, view.columns = str(read), sort, columns
    _share(view, audience, team)
    view.save()
    return view, before


@transaction.atomic
def change_view(user: User, view_id: int, *, name: str, audience: str, team_id: int | None = None) -> SavedView | None:
    """Gives a view another name or other people. None when it is not theirs to change. Raises ViewRefused."""
    view = _changeable(user, view_id)
    if view is None:
        return None
    name, team = _name(name), _team(user, audience, team_id)
    same = SavedView.objects.filter(owner=view.owner, name=name, deleted_at=None).exclude(pk=view.pk)
    if same.exists():
        raise ViewRefused("name", f"There is a view {name} already.")
    if view.owner_id != user.pk and (audience, team) != (view.audience, view.team):
        raise ViewRefused("audience", "Only who made it says who sees it.")
    view.name = name
    _share(view, audience, team)
    view.save()
    return view


@transaction.atomic
def delete_view(user: User, view_id: int) -> SavedView | None:
    """Takes a view away from everybody; None when it is not theirs to change, or is gone already. Whoever began with it
    begins with all, until it is restored.
    """
    view = _changeable(user, view_id)
    if view is not None:
        view.deleted_at = timezone.now()
        view.save(update_fields=["deleted_at"])
    return view


@transaction.atomic
def restore_view(user: User, view_id: int, values: dict[str, Any] | None = None) -> bool:
    """Brings a deleted view back, or what a view held before it was replaced. False when it can't be."""
    view = SavedView.objects.select_for_update().filter(pk=view_id).first()
    if view is None or not may_change(user, view, _team_ids(user)):
        return False
    taken = SavedView.objects.filter(owner=view.owner, name=view.name, deleted_at=None).exclude(pk=view.pk)
    if taken.exists():
        return False
    if SavedView.objects.filter(team=view.team_id, opens_for_team=True, deleted_at=None).exclude(pk=view.pk).exists():
        view.opens_for_team = False
    view.deleted_at = None
    for name, value in (values or {}).items():
        if name in _KEPT:
            setattr(view, name, value)
    view.save()
    return True


@transaction.atomic
def choose_default(user: User, view_id: int | None) -> bool:
    """What somebody's list opens with: a view, or None for all failures. False when they can't see the view."""
    if view_id is not None and not visible_views(user).filter(pk=view_id).exists():
        return False
    DefaultView.objects.update_or_create(user=user, defaults={"view_id": view_id})
    return True


@transaction.atomic
def open_for_team(user: User, view_id: int, opens: bool) -> SavedView | None:
    """Whether the lists of a team open with this view of theirs; one a team. None when it is not theirs to say."""
    view = _changeable(user, view_id)
    if view is None or view.audience != Audience.TEAM or view.team is None:
        return None
    Group.objects.select_for_update().get(pk=view.team.pk)  # one at a time for each team
    if opens:
        SavedView.objects.filter(team=view.team, opens_for_team=True).update(opens_for_team=False)
    view.opens_for_team = opens
    view.save(update_fields=["opens_for_team"])
    return view


def default_view(user: User) -> SavedView | None:
    """The view that somebody's list opens with: what they chose, else what a team of theirs chose. None: all."""
    chosen = DefaultView.objects.filter(user=user).first()
    if chosen is not None and chosen.view_id is None:
        return None
    views = visible_views(user).select_related("team")
    own = views.filter(pk=chosen.view_id).first() if chosen is not None else None
    of_teams = views.filter(opens_for_team=True, audience=Audience.TEAM, team__in=user.groups.all())
    return own or of_teams.order_by("team__name", "id").first()


def teams_of(user: User) -> list[Group]:
    """The teams (groups) that somebody can share with."""
    return list(user.groups.order_by("name")[:100])


# --- parts ------------------------------------------------------------------------------------------------------------

_KEPT = ("query", "sort", "columns", "audience", "team_id")
"""What is kept of a view that is replaced."""


def _values(view: SavedView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in _KEPT}


def _name(name: str) -> str:
    name = short(" ".join(name.split()), 80)
    if not name:
        raise ViewRefused("name", "Give the view a name.")
    return name


def _team(user: User, audience: str, team_id: int | None) -> Group | None:
    if audience not in Audience.values:
        raise ViewRefused("audience", "Choose who sees it.")
    if audience != Audience.TEAM:
        return None
    team = user.groups.filter(pk=team_id).first()
    if team is None:
        raise ViewRefused("team", "Choose one of your teams.")
    return team


def _share(view: SavedView, audience: str, team: Group | None) -> None:
    if (view.audience, view.team) != (audience, team):
        view.opens_for_team = False
    view.audience, view.team = audience, team


def _team_ids(user: User) -> set[int]:
    return set(user.groups.values_list("pk", flat=True))


def _changeable(user: User, view_id: int) -> SavedView | None:
    view = SavedView.objects.select_for_update().filter(pk=view_id, deleted_at=None).first()
    return view if view is not None and may_change(user, view, _team_ids(user)) else None
