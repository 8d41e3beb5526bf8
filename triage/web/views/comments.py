"""Comments: added, edited, deleted; the discussion as a fragment that renews itself; what people are told."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST

from triage.access.rights import responders, signed_in
from triage.models import Attempt, Comment, Incident, Notification
from triage.selectors.notifications import notes_of
from triage.selectors.threads import attempt_state, attempt_thread
from triage.services import comments
from triage.web import discussion
from triage.web.found import attempt_or_404, incident_or_404
from triage.web.htmx import fragment, is_htmx, is_known
from triage.web.views.attempts import detail_or_404


@responders
def add_to_attempt(request: HttpRequest, pk: int) -> HttpResponse:
    """Says something about an attempt."""
    return _add(request, attempt_or_404(pk))


@responders
def add_to_incident(request: HttpRequest, pk: int) -> HttpResponse:
    """Says something about an incident."""
    return _add(request, incident_or_404(pk))


def _add(request: HttpRequest, subject: Attempt | Incident) -> HttpResponse:
    page = reverse("attempt" if isinstance(subject, Attempt) else "incident", args=[subject.pk])
    if request.method != "POST":
        return HttpResponseRedirect(f"{page}#discussion")
    forms, text = request.POST.getlist("quote"), request.POST.get("text", "")
    if request.POST.get("do") == "quote":
        added = _lines_form(request)
        query = [("quote", form) for form in [*forms, added] if form]
        query += [("text", text[: discussion.MAX_DRAFT])] if text else []
        return HttpResponseRedirect(f"{page}?{urlencode(query)}#discussion")
    quotes, errors = discussion.read_quotes(forms, subject)
    if not errors:
        try:
            comment = comments.add_comment(subject, request.user, text, quotes=quotes, form_key=_key(request))
            return HttpResponseRedirect(f"{page}#c{comment.pk}")
        except comments.CommentRefused as refused:
            errors = [str(refused)]
    filled = discussion.compose(
        request, subject, text=text, errors=errors, quotes=[(discussion.quote_form(quote), quote) for quote in quotes]
    )
    context = {"section": "failures", "compose": filled, "subject": subject, "page": page}
    return render(request, "incident/comment.html", context, status=422)


def _lines_form(request: HttpRequest) -> str:
    """The lines that the small form under the text names."""
    stream, first, last = (request.POST.get(name, "").strip() for name in ("stream", "first", "last"))
    lines = request.POST.get("lines", "").strip()
    if lines or not stream or not first:
        return lines
    return f"{stream}:{first}" + (f"-{last}" if last else "")


def _key(request: HttpRequest) -> uuid.UUID | None:
    try:
        return uuid.UUID(request.POST.get("form_key", ""))
    except ValueError:
        return None


@responders
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Changes one's own comment."""
    comment = _own(request, pk)
    context: dict[str, Any] = {"section": "failures", "comment": comment, "text": comment.text, "page": _page(comment)}
    if request.method == "POST":
        context["text"] = request.POST.get("text", "")
        try:
            comments.edit_comment(pk, request.user, context["text"], seen=request.POST.get("seen", ""))
            return HttpResponseRedirect(f"{_page(comment)}#c{pk}")
        except comments.CommentRefused as refused:
            context["error"] = str(refused)
    return render(request, "incident/edit.html", context, status=422 if "error" in context else 200)


@require_POST
@responders
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes one's own comment."""
    comment = _own(request, pk)
    comments.delete_comment(pk, request.user)
    messages.info(request, "The comment is deleted.")
    return HttpResponseRedirect(f"{_page(comment)}#discussion")


def _own(request: HttpRequest, pk: int) -> Comment:
    try:
        comment = Comment.objects.select_related("attempt__workload", "incident").get(pk=pk, deleted_at=None)
    except (Comment.DoesNotExist, OverflowError):
        raise Http404 from None
    if comment.author_id != request.user.pk:
        raise PermissionDenied
    return comment


def _page(comment: Comment) -> str:
    if comment.incident_id is not None:
        return reverse("incident", args=[comment.incident_id])
    return reverse("attempt", args=[comment.attempt_id])


@signed_in
def attempt_discussion(request: HttpRequest, pk: int) -> HttpResponse:
    """What was said on an attempt, as a fragment."""
    try:
        subject = Attempt.objects.only("pk").get(pk=pk)
    except (Attempt.DoesNotExist, OverflowError):
        raise Http404 from None
    page = reverse("attempt", args=[pk]) + "#discussion"
    state = attempt_state(subject)
    context: dict[str, Any] = {"thread_url": reverse("attempt-discussion", args=[pk])}
    if is_htmx(request) and not is_known(request, state):
        attempt = detail_or_404(pk).attempt
        context |= {"thread": attempt_thread(attempt), "subject": attempt, "attempt": attempt, "renewed": True}
    return fragment(request, "incident/_thread_news.html", context, page, state)


@signed_in
def notifications(request: HttpRequest) -> HttpResponse:
    """What a person was told, newest first; to open one is to have read it."""
    if request.method == "POST":
        comments.read_notifications(request.user)
        return redirect("notifications")
    return render(request, "incident/notifications.html", {"notes": notes_of(request.user)})


@signed_in
def notification(request: HttpRequest, pk: int) -> HttpResponse:
    """Leads to what it is about, and marks it as read."""
    note = Notification.objects.filter(pk=pk, user=request.user).first()
    if note is None:
        raise Http404
    comments.read_notifications(request.user, [pk])
    page = (
        reverse("incident", args=[note.incident_id])
        if note.incident_id is not None
        else reverse("attempt", args=[note.attempt_id])
    )
    return HttpResponseRedirect(page + (f"#c{note.comment_id}" if note.comment_id else ""))
