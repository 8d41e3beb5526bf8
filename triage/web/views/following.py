"""Feeds and badges: for who shows a token or is signed in, and under addresses that need neither."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from rest_framework.request import Request

from triage.access.address import client_address, network_of
from triage.access.rights import open_to_all, signed_in
from triage.access.sight import seeing
from triage.access.viewer import viewer_of
from triage.api.base import ApiView, attempt_or_404
from triage.api.permissions import READ
from triage.api.problems import Invalid
from triage.models import Attempt, Followed, FollowedKind
from triage.services import following
from triage.text import printable
from triage.web import feeds
from triage.web.inbox import View
from triage.web.incident_view import ListView
from triage.web.open_addresses import LINK_RATE, private, too_often

SHOWN = 200


class FailuresFeed(ApiView):
    """`/failures.atom`, with the parameters of the list."""

    scopes = {"GET": READ}

    def get(self, request: Request) -> HttpResponseBase:
        """The newest failures as Atom."""
        try:
            return feeds.failures_feed(request._request, request.user, request.query_params)
        except feeds.NotUnderstood as error:
            raise Invalid(q=str(error)) from None


class IncidentsFeed(ApiView):
    """`/incidents.atom`, with the parameters of the list."""

    scopes = {"GET": READ}

    def get(self, request: Request) -> HttpResponseBase:
        """Incidents as Atom."""
        return feeds.incidents_feed(request._request, request.user, request.query_params)


class AttemptBadge(ApiView):
    """`/attempts/7/badge.svg`; `?of=workload`: of its workload's newest attempt."""

    scopes = {"GET": READ}

    def get(self, request: Request, attempt_id: int) -> HttpResponseBase:
        """The verdict as a picture."""
        attempt_or_404(attempt_id)
        of = request.query_params.get("of", "attempt")
        if of not in ("attempt", "workload"):
            raise Invalid(of="must be attempt or workload")
        return feeds.attempt_badge(request._request, attempt_id, newest=of == "workload")


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """One's own addresses, and a form for another; `?kind=&about=` fills it in."""
    values, errors = _filled(request.GET), {}
    if request.method == "POST":
        values = _filled(request.POST)
        try:
            about = _about(values["kind"], values["about"])
            following.follow(request.user, values["kind"], about, note=values["note"])
        except following.FollowRefused as error:
            errors[error.field] = str(error)
        else:
            messages.success(request, "The address is made: it stands first in the list.")
            return redirect("following")
    mine = Followed.objects.filter(by=request.user).order_by("revoked_at", "-created_at", "-id")[:SHOWN]
    context = {
        "section": "following",
        "rows": [_row(request, one) for one in mine if one.revoked_at is None],
        "ended": [one for one in mine if one.revoked_at is not None][:20],
        "kinds": FollowedKind.choices,
        "values": values,
        "errors": errors,
    }
    return render(request, "following/page.html", context, status=400 if errors else 200)


@require_POST
@signed_in
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends one of one's own now."""
    if following.stop_following(request.user, pk):
        messages.success(request, "The address shows nothing any more.")
    else:
        messages.warning(request, "That is no open address of yours.")
    return redirect("following")


@open_to_all
@require_safe
def shown(request: HttpRequest, token: str) -> HttpResponseBase:
    """What an address shows: what who made it sees now. Who tries addresses that never were waits."""
    found = following.find_followed(token)
    if found is None:
        left = too_often(f"followed:{network_of(client_address(request))}", 1)
        return _wait(left) if left is not None else _nothing(404)
    if (left := too_often(f"followed-link:{found.pk}", LINK_RATE)) is not None:
        return _wait(left)
    viewer = viewer_of(found.by)
    if found.revoked_at is not None or viewer.role is None:
        return _nothing(410)
    with seeing(viewer.sight):
        try:
            answer = _content(request, found, found.by)
        except (Attempt.DoesNotExist, feeds.NotUnderstood):
            return _nothing(404)
    following.note_use(found)
    return private(answer, "no-cache")


def _content(request: HttpRequest, found: Followed, user: User) -> HttpResponseBase:
    if found.kind in following.BADGES:
        return feeds.attempt_badge(request, int(found.about), newest=found.kind == FollowedKind.WORKLOAD)
    if found.kind == FollowedKind.INCIDENTS:
        return feeds.incidents_feed(request, user, QueryDict(found.about))
    return feeds.failures_feed(request, user, QueryDict(found.about))


def _about(kind: str, about: str) -> str:
    """What is kept of what was typed: of a search its parameters. Raises FollowRefused."""
    if kind == FollowedKind.FAILURES:
        view = View.of(QueryDict(about) if _is_params(about) else _params(about))
        if view.query.errors:
            raise following.FollowRefused("about", view.query.errors[0])
        return _params(str(view.query)).urlencode()
    if kind == FollowedKind.INCIDENTS:
        return ListView.of(QueryDict(about) if _is_params(about) else _params(about)).params()
    return about


def _is_params(text: str) -> bool:
    """Whether it is part of an address, and not a search."""
    return text.partition("=")[0] in ("q", "view", "domain", "assignee", "severity", "sort")


def _params(search: str) -> QueryDict:
    made = QueryDict(mutable=True)
    if search.strip():
        made["q"] = search
    return made


def _filled(sent: QueryDict) -> dict[str, str]:
    values = {name: printable(sent.get(name, "")) for name in ("kind", "about", "note")}
    return {**values, "kind": values["kind"] or FollowedKind.FAILURES.value}


def _row(request: HttpRequest, one: Followed) -> dict[str, Any]:
    url = request.build_absolute_uri(reverse("followed", args=[following.followed_word(one)]))
    badge = one.kind in following.BADGES
    about = f"attempt {one.about}" if badge else _in_words(one)
    return {"one": one, "url": url, "badge": badge, "about": about, "markdown": f"![Faultline]({url})" if badge else ""}


def _in_words(one: Followed) -> str:
    params = QueryDict(one.about)
    if one.kind == FollowedKind.INCIDENTS:
        return ListView.of(params).title
    return str(View.of(params).query) or "everything"


def _nothing(status: int) -> HttpResponseBase:
    text = "This address shows nothing." if status == 404 else "This address has ended."
    return private(HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8"))


def _wait(left: float) -> HttpResponseBase:
    answer = HttpResponse("Too often: wait a minute.\n", status=429, content_type="text/plain; charset=utf-8")
    answer.headers["Retry-After"] = str(int(left) + 1)
    return private(answer)
