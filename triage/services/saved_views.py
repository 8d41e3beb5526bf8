"""Searches that people keep, share and begin with."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q, QuerySet

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
    """The views that somebody sees: their own, those of their teams, those for everybody."""
    teams = Q(audience=Audience.TEAM, team__in=user.groups.all())
    return SavedView.objects.filter(Q(owner=user) | teams | Q(audience=Audience.ALL))


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
) -> SavedView:
    """Keeps a search under a name; one of the same owner with that name is replaced. Raises ViewRefused."""
    name = short(" ".join(name.split()), 80)
    if not name:
        raise ViewRefused("name", "Give the view a name.")
    if audience not in Audience.values:
        raise ViewRefused("audience", "Choose who sees it.")
    read = parse(query)
    if read.errors:
        raise ViewRefused("query", read.errors[0])
    team = None
    if audience == Audience.TEAM:
        team = owner.groups.filter(pk=team_id).first()
        if team is None:
            raise ViewRefused("team", "Choose one of your teams.")
    User.objects.select_for_update().get(pk=owner.pk)  # one at a time for each owner
    known = SavedView.objects.filter(owner=owner, name=name).first()
    if known is None and SavedView.objects.filter(owner=owner).count() >= MAX_VIEWS:
        raise ViewRefused("name", f"{MAX_VIEWS} views are the most. Delete one first.")
    values = {"query": str(read), "sort": sort, "columns": columns, "audience": audience, "team": team}
    view, _ = SavedView.objects.update_or_create(owner=owner, name=name, defaults=values)
    return view


@transaction.atomic
def delete_view(owner: User, view_id: int) -> SavedView | None:
    """Deletes a view of one's own; None when it isn't, or is gone already. Whoever began with it begins with all."""
    view = SavedView.objects.filter(owner=owner, pk=view_id).first()
    if view is not None:
        SavedView.objects.filter(pk=view.pk).delete()
    return view


@transaction.atomic
def choose_default(user: User, view_id: int | None) -> bool:
    """The view that somebody's list opens with; None for everything. False when they can't see it."""
    if view_id is None:
        DefaultView.objects.filter(user=user).delete()
        return True
    view = visible_views(user).filter(pk=view_id).first()
    if view is None:
        return False
    DefaultView.objects.update_or_create(user=user, defaults={"view": view})
    return True


def teams_of(user: User) -> list[Group]:
    """The teams (groups) that somebody can share with."""
    return list(user.groups.order_by("name")[:100])
