"""Actions on many failures: on the rows that were picked, or on all that match, after a page that says how many."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from triage import words
from triage.selectors.attempts import PAGE_SIZE, count_attempts, matching_ids
from triage.services import bulk
from triage.web import inbox
from triage.web.htmx import signed_in

ACTIONS: dict[str, tuple[str, str]] = {
    "diagnose": ("Diagnose again", "asked to be diagnosed again"),
    "confirm": ("Confirm", "confirmed"),
    "assign": ("Assign", "given to"),
}
"""What the button says, and what was done."""
_SALT = "triage.bulk.undo"


@require_POST
@signed_in
def act(request: HttpRequest) -> HttpResponse:
    """Does it at once for the rows of one page. For all that match it first says how many that are, and asks."""
    view = inbox.View.of(QueryDict(request.POST.get("search", "")))
    action = request.POST.get("action", "")
    if action not in ACTIONS or view.query.errors:
        return redirect(view.address())
    narrowed = view.narrowed(request.user)
    if request.POST.get("all"):
        total = count_attempts(narrowed)
        if request.POST.get("seen") != str(total) or total > bulk.LIMIT:
            return _ask(request, view, action, total)
        ids = matching_ids(narrowed, bulk.LIMIT)
    else:
        picked = [int(pk) for pk in request.POST.getlist("pick")[: PAGE_SIZE * 4] if pk.isdecimal() and len(pk) < 19]
        ids = list(dict.fromkeys(picked))
    if not ids:
        messages.error(request, "Nothing was selected. Tick the rows first.")
        return redirect(view.address())
    _do(request, action, ids)
    return redirect(view.address())


@require_POST
@signed_in
def undo(request: HttpRequest) -> HttpResponse:
    """Takes back verdicts that were made together."""
    back = inbox.View.of(QueryDict(request.POST.get("search", ""))).address()
    try:
        made = signing.loads(request.POST.get("made", ""), salt=_SALT, max_age=3600)
    except signing.BadSignature:
        messages.error(request, "Too late to undo this here. Withdraw the verdict on the page of the attempt.")
        return redirect(back)
    number = bulk.take_back([(attempt, verdict) for attempt, verdict in made], request.user)
    messages.success(request, f"Took back {words.count(number, 'confirmation')}")
    return redirect(back)


def _ask(request: HttpRequest, view: inbox.View, action: str, total: int) -> HttpResponse:
    context = {
        "section": "failures",
        "view": view,
        "action": action,
        "label": ACTIONS[action][0],
        "total": total,
        "limit": bulk.LIMIT,
        "search": inbox.encoded(view.params()),
        "assignee": request.POST.get("assignee", ""),
        "assignee_name": _name(_person(request.POST.get("assignee", ""))),
        "back": view.address(),
    }
    return render(request, "failures/bulk.html", context)


def _do(request: HttpRequest, action: str, ids: list[int]) -> None:
    actor = request.user
    noun = "incident" if action == "assign" else "attempt"
    if action == "assign":
        person = _person(request.POST.get("assignee", ""))
        result = bulk.assign(ids, actor, person.pk if person else None)
        said = f"{ACTIONS[action][1]} {_name(person)}"
    else:
        run: Callable[..., bulk.Done] = {"diagnose": bulk.diagnose_again, "confirm": bulk.confirm}[action]
        result = run(ids, actor)
        said = ACTIONS[action][1]
    parts = [f"{words.count(len(result.done), noun)} {said}"]
    parts += [f"{count:,} left as they were: {why}" for why, count in result.skipped.most_common()]
    messages.success(request, "; ".join(parts))
    if result.undo:
        request.session["bulk_undo"] = signing.dumps(result.undo, salt=_SALT, compress=True)


def _person(value: str) -> User | None:
    return User.objects.filter(pk=int(value), is_active=True).first() if value.isdecimal() and len(value) < 18 else None


def _name(person: User | None) -> str:
    return (person.get_full_name() or person.get_username()) if person else "nobody"
