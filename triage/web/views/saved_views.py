"""Saved views: kept, shared, chosen to begin with, changed, deleted and brought back."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from triage.access.rights import check_role, responders, signed_in
from triage.access.roles import Role
from triage.models import Audience
from triage.services import saved_views as service
from triage.web import inbox, undo
from triage.web.forms import number


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """Every view that somebody sees, and which of them are theirs to change."""
    teams = service.teams_of(request.user)
    mine = {team.pk for team in teams}
    views = service.visible_views(request.user).select_related("owner", "team")
    opens = service.default_view(request.user)
    rows = [
        {
            "view": one,
            "url": inbox.View.saved(one).address(),
            "own": one.owner_id == request.user.pk,
            "changeable": service.may_change(request.user, one, mine),
            "opens": opens is not None and one.pk == opens.pk,
        }
        for one in views
    ]
    context = {"section": "failures", "rows": rows, "teams": teams, "all_url": inbox.list_address()}
    return render(request, "failures/views.html", context)


@require_POST
@signed_in
def save(request: HttpRequest) -> HttpResponse:
    """Keeps the search of the list that the form came from, and shows it."""
    view = inbox.View.of(QueryDict(request.POST.get("search", "")))
    audience, team = _audience(request)
    try:
        kept, before = service.save_view(
            request.user,
            request.POST.get("name", ""),
            str(view.query),
            sort=view.params().get("sort", ""),
            columns=",".join(view.columns),
            audience=audience,
            team_id=team,
        )
    except service.ViewRefused as error:
        messages.error(request, f"Not saved. {error}")
        return redirect(view.address())
    if request.POST.get("default"):
        service.choose_default(request.user, kept.pk)
    if before is not None:
        undo.offer(request, "view", f"Replaced your view {kept.name}", view=kept.pk, values=before)
    else:
        messages.success(request, f"Saved as {kept.name}")
    return redirect(inbox.View.saved(kept).address())


@require_POST
@signed_in
def change(request: HttpRequest, pk: int) -> HttpResponse:
    """Gives a view another name or other people."""
    audience, team = _audience(request)
    try:
        name = request.POST.get("name", "")
        view = service.change_view(request.user, pk, name=name, audience=audience, team_id=team)
    except service.ViewRefused as error:
        messages.error(request, f"Not changed. {error}")
        return redirect("saved-views")
    if view is None:
        messages.error(request, "That view is gone, or not yours to change.")
    else:
        messages.success(request, f"Changed {view.name}")
    return redirect("saved-views")


@require_POST
@signed_in
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a view; the next page offers to bring it back."""
    view = service.delete_view(request.user, pk)
    if view is not None:
        undo.offer(request, "view", f"Deleted {view.name}", view=view.pk)
    return redirect("saved-views")


@undo.undoes("view", Role.VIEWER)
def _restore(user: User, facts: dict[str, Any]) -> str:
    if not service.restore_view(user, facts["view"], facts.get("values")):
        raise undo.NotUndone("Another view has that name by now, or it is not yours to change.")
    return "The view is as it was."


@require_POST
@signed_in
def choose(request: HttpRequest) -> HttpResponse:
    """Sets the view that one's list opens with; nothing chosen for all failures."""
    wanted = request.POST.get("view", "")
    if (wanted and number(wanted) is None) or not service.choose_default(request.user, number(wanted)):
        messages.error(request, "That view is gone.")
    return redirect("saved-views")


@require_POST
@responders
def for_team(request: HttpRequest, pk: int) -> HttpResponse:
    """Whether the lists of the view's team open with it."""
    if service.open_for_team(request.user, pk, bool(request.POST.get("opens"))) is None:
        messages.error(request, "That view is gone, or of no team of yours.")
    return redirect("saved-views")


def _audience(request: HttpRequest) -> tuple[str, int | None]:
    """Who shall see it: others only when a responder says so."""
    audience, _, team = request.POST.get("audience", Audience.ME).partition(":")
    if audience != Audience.ME:
        check_role(request, Role.RESPONDER)
    return audience, number(team)
