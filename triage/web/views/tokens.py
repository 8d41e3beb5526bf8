"""One's own API tokens: made, shown once, ended."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from triage.access.rights import signed_in
from triage.models import ApiToken
from triage.services import tokens
from triage.web.forms import number

SHOWN_ENDED = 20


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """The list with a form. The answer to the form is the only one that ever holds the token; no cache keeps it."""
    values = {"name": "", "scopes": ["read"], "days": tokens.DEFAULT_DAYS}
    error, made, secret = "", None, ""
    if request.method == "POST":
        days = number(request.POST.get("days", ""))
        values = {"name": request.POST.get("name", ""), "scopes": request.POST.getlist("scope"), "days": days}
        try:
            made, secret = tokens.create_own_token(
                request.user, str(values["name"]), request.POST.getlist("scope"), days=days or 0
            )
            values = {"name": "", "scopes": ["read"], "days": tokens.DEFAULT_DAYS}
        except tokens.TokenRefused as refused:
            error = str(refused)
    chosen = values["scopes"]
    mine = list(ApiToken.objects.filter(user=request.user))
    context = {
        "section": "tokens",
        "valid": [one for one in mine if one.is_valid],
        "ended": [one for one in mine if not one.is_valid][:SHOWN_ENDED],
        "scopes": [(scope.value, scope.label, scope.value in chosen) for scope in tokens.open_to(request.user)],
        "days": [(days, days == values["days"]) for days in tokens.DAYS],
        "values": values,
        "error": error,
        "made": made,
        "secret": secret,
    }
    answer = render(request, "account/tokens.html", context, status=400 if error else 200)
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


@require_POST
@signed_in
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends one of one's own now."""
    if tokens.revoke_token(pk, user=request.user):
        messages.success(request, "The token is revoked: nobody gets in with it any more.")
    else:
        messages.warning(request, "That is no valid token of yours.")
    return redirect("tokens")
