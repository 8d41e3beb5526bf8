"""Saved views: kept, shared, chosen to begin with, deleted and brought back."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from triage.models import Audience, DefaultView
from triage.services import saved_views as service
from triage.web import inbox
from triage.web.htmx import signed_in


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """Every view that somebody sees, theirs to change."""
    chosen = DefaultView.objects.filter(user=request.user).values_list("view", flat=True).first()
    views = service.visible_views(request.user).select_related("owner", "team")
    rows = [
        {"view": one, "url": inbox.View.saved(one).address(), "mine": one.owner_id == request.user.pk} for one in views
    ]
    context = {
        "section": "failures",
        "rows": rows,
        "default": chosen,
        "deleted": request.session.pop("deleted_view", None),
        "all_url": inbox.list_address(),
    }
    return render(request, "failures/views.html", context)


@require_POST
@signed_in
def save(request: HttpRequest) -> HttpResponse:
    """Keeps the search of the list that the form came from, and shows it."""
    view = inbox.View.of(QueryDict(request.POST.get("search", "")))
    audience, _, team = request.POST.get("audience", Audience.ME).partition(":")
    try:
        kept = service.save_view(
            request.user,
            request.POST.get("name", ""),
            str(view.query),
            sort=view.params().get("sort", ""),
            columns=",".join(view.columns),
            audience=audience,
            team_id=int(team) if team.isdecimal() and len(team) < 18 else None,
        )
    except service.ViewRefused as error:
        messages.error(request, f"Not saved. {error}")
        return redirect(view.address())
    if request.POST.get("default"):
        service.choose_default(request.user, kept.pk)
    messages.success(request, f"Saved as {kept.name}")
    return redirect(inbox.View.saved(kept).address())


@require_POST
@signed_in
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a view; the next page offers to bring it back."""
    view = service.delete_view(request.user, pk)
    if view is not None:
        audience = f"team:{view.team_id}" if view.audience == Audience.TEAM else view.audience
        search = inbox.encoded({"q": view.query, "sort": view.sort, "cols": view.columns})
        request.session["deleted_view"] = {"name": view.name, "search": search, "audience": audience}
    return redirect("saved-views")


@require_POST
@signed_in
def choose(request: HttpRequest) -> HttpResponse:
    """Sets the view that one's list opens with; nothing chosen for all failures."""
    wanted = request.POST.get("view", "")
    if not service.choose_default(request.user, int(wanted) if wanted.isdecimal() and len(wanted) < 18 else None):
        messages.error(request, "That view is gone.")
    return redirect("saved-views")
