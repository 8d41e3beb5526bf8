"""Actions on many failures: on the rows that were picked, or on all that match, after a page that says how many."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from triage import words
from triage.access.rights import responders
from triage.access.viewer import seen_people
from triage.selectors.attempts import PAGE_SIZE, count_attempts, matching_ids
from triage.services import bulk
from triage.services.incidents import IncidentRefused, Place, put_back
from triage.web import inbox, undo
from triage.web.forms import incident_number

ACTIONS: dict[str, tuple[str, str]] = {
    "diagnose": ("Diagnose again", "asked to be diagnosed again"),
    "confirm": ("Confirm", "confirmed"),
    "assign": ("Assign", "given to"),
    "add": ("Add to incident", "added to"),
}
"""What the button says, and what was done."""


@require_POST
@responders
def act(request: HttpRequest) -> HttpResponse:
    """Does it at once for the rows of one page. For all that match it first says how many that are, and asks."""
    view = inbox.View.of(QueryDict(request.POST.get("search", "")))
    action = request.POST.get("action", "")
    if action == "enter" and request.POST.get("incident"):  # the return key, in the only field that takes text
        action = "add"
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
        "incident": request.POST.get("incident", ""),
        "back": view.address(),
    }
    return render(request, "failures/bulk.html", context)


def _do(request: HttpRequest, action: str, ids: list[int]) -> None:
    """Does it, and says what became of it, with what takes it back."""
    actor, more = request.user, {}
    noun, said = "attempt", ACTIONS[action][1]
    match action:
        case "assign":
            person = _person(request.POST.get("assignee", ""))
            result = bulk.assign(ids, actor, person.pk if person else None)
            noun, said = "incident", f"{said} {_name(person)}"
        case "add":
            number = incident_number(request.POST.get("incident", ""))
            if number is None:
                messages.error(request, "Write the number of the incident that they belong to, for example INC-97.")
                return
            try:
                result = bulk.add_to_incident(ids, actor, number)
            except IncidentRefused as refused:
                messages.error(request, str(refused))
                return
            said, more = f"{said} INC-{number}", {"incident": number}
        case "confirm":
            result = bulk.confirm(ids, actor)
        case _:
            result = bulk.diagnose_again(ids, actor)
    parts = [f"{words.count(len(result.done), noun)} {said}"]
    parts += [f"{count:,} left as they were: {why}" for why, count in result.skipped.most_common()]
    if result.undo:
        undo.offer(request, f"bulk-{action}", "; ".join(parts), made=result.undo, **more)
    else:
        messages.success(request, "; ".join(parts))


@undo.undoes("bulk-confirm")
def _take_back(user: User, facts: dict[str, Any]) -> str:
    number = bulk.take_back([(attempt, verdict) for attempt, verdict in facts["made"]], user)
    return f"Took back {words.count(number, 'confirmation')}" + _left(len(facts["made"]) - number)


@undo.undoes("bulk-assign")
def _give_back(user: User, facts: dict[str, Any]) -> str:
    number = bulk.give_back([(incident, before, after) for incident, before, after in facts["made"]], user)
    return f"Gave {words.count(number, 'incident')} back" + _left(len(facts["made"]) - number)


@undo.undoes("bulk-add")
def _put_back(user: User, facts: dict[str, Any]) -> str:
    try:
        number = put_back(facts["incident"], [Place(*place) for place in facts["made"]], user)
    except IncidentRefused as refused:
        raise undo.NotUndone(str(refused)) from None
    return f"Put {words.count(number, 'attempt')} back" + _left(len(facts["made"]) - number)


def _left(number: int) -> str:
    return f"; {number:,} left as they were: changed meanwhile" if number else ""


def _person(value: str) -> User | None:
    return seen_people().filter(pk=int(value)).first() if value.isdecimal() and len(value) < 18 else None


def _name(person: User | None) -> str:
    return (person.get_full_name() or person.get_username()) if person else "nobody"
