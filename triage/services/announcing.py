"""From events to deliveries: what happened is announced in its own transaction, and a worker asks the routes later.

So nothing that is told can be lost, and triage never waits for a query of a route.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from engine.model import UNATTRIBUTED, Outcome
from triage.access.sight import all_seeing
from triage.models import (
    Announcement,
    Attempt,
    Delivery,
    DeliveryState,
    EventKind,
    Incident,
    News,
    Route,
    TimelineEvent,
)
from triage.models.incident import SETTLED
from triage.selectors.filters import filtered_attempts
from triage.selectors.query import parse
from triage.services.clock import database_now
from triage.services.messages import as_plain, compose

ANNOUNCED = {
    EventKind.INCIDENT_OPENED, EventKind.INCIDENT_JOINED, EventKind.INCIDENT_REGRESSED, EventKind.INCIDENT_STATUS,
    EventKind.DIAGNOSIS_RECORDED,
}  # fmt: skip
BATCH = 200


@all_seeing
def announce(event: TimelineEvent) -> None:
    """Keeps an event for the routes. Call in the event's transaction; without a route nothing is kept."""
    if event.kind in ANNOUNCED and Route.objects.filter(enabled=True, channel__enabled=True).exists():
        Announcement.objects.create(event=event)


@transaction.atomic
def plan_deliveries(limit: int = BATCH) -> int:
    """Makes deliveries of announcements, the oldest first. Returns how many announcements there were.

    Two workers at once share them; one that dies half-way leaves them all.
    """
    waiting = (
        Announcement.objects.select_for_update(of=("self",), skip_locked=True)
        .select_related(
            "event__incident",
            "event__attempt__workload",
            "event__attempt__cluster",
            "event__attempt__diagnosis",
            "event__attempt__verdict",
        )
        .order_by("event_id")[:limit]
    )
    planned = list(waiting)
    if not planned:
        return 0
    routes = list(Route.objects.filter(enabled=True, channel__enabled=True).select_related("channel").order_by("id"))
    for announcement in planned:
        _plan(announcement.event, routes)
    Announcement.objects.filter(pk__in=[one.pk for one in planned]).delete()
    return len(planned)


def news_of(event: TimelineEvent) -> News | None:
    """What an event is to the outside; None when it's nothing."""
    match event.kind:
        case EventKind.INCIDENT_OPENED:
            return News.OPENED
        case EventKind.INCIDENT_JOINED:
            return News.REPEATED
        case EventKind.INCIDENT_REGRESSED:
            return News.REGRESSED
        case EventKind.INCIDENT_STATUS:
            return News.SETTLED if event.payload.get("after") in SETTLED else None
        case EventKind.DIAGNOSIS_RECORDED if event.attempt is not None:
            return News.UNATTRIBUTED if _is_unattributed(event.attempt) else None
    return None


def _is_unattributed(attempt: Attempt) -> bool:
    return attempt.domain == UNATTRIBUTED and attempt.outcome not in ("", Outcome.SUCCEEDED)


def _plan(event: TimelineEvent, routes: list[Route]) -> None:
    news = news_of(event)
    if news is None:
        return
    came_back = news == News.REPEATED and _regressed_by(event)
    for route in routes:
        if came_back and News.REGRESSED in route.news:
            continue  # one attempt, one message: that it came back says more
        if news in route.news and _wants(route, news, event):
            _deliver(route, news, event)


def _regressed_by(event: TimelineEvent) -> bool:
    return TimelineEvent.objects.filter(
        kind=EventKind.INCIDENT_REGRESSED, incident=event.incident_id, attempt=event.attempt_id
    ).exists()


def _wants(route: Route, news: News, event: TimelineEvent) -> bool:
    incident = event.incident
    if incident is not None:
        if incident.attempts_count < route.least_attempts and news in (News.OPENED, News.REPEATED):
            return False
        if route.severity is not None and (incident.severity is None or incident.severity > route.severity):
            return False
    elif route.severity is not None:
        return False
    query = parse(route.query)
    if query.errors:
        return False  # the page says so beside the route
    found = filtered_attempts(query.to_filter())
    if event.attempt_id is not None:
        return found.filter(pk=event.attempt_id).exists()
    return found.filter(membership__incident=incident).exists()


def _deliver(route: Route, news: News, event: TimelineEvent) -> None:
    """One delivery a channel and event; repeats within the quiet time are added to the one that waits."""
    if Delivery.objects.filter(channel=route.channel, event=event, again=None).exists():
        return  # another route of the same channel told of it
    thread = thread_of(event.incident, event.attempt)
    due = database_now()
    if news == News.REPEATED and route.quiet_minutes:
        waiting = (
            Delivery.objects.select_for_update()
            .filter(channel=route.channel, thread=thread, news=news, state=DeliveryState.WAITING, tries=0, lease=None)
            .first()
        )
        if waiting is not None:
            waiting.covers += 1
            waiting.attempt, waiting.event = event.attempt, event
            waiting.message = as_plain(compose(news, thread, event, covers=waiting.covers))
            waiting.save(update_fields=["covers", "attempt", "event", "message"])
            return
        due = _after_quiet(route, thread, due)
    Delivery.objects.create(
        channel=route.channel,
        route=route,
        event=event,
        news=news,
        incident=event.incident,
        attempt=event.attempt,
        thread=thread,
        message=as_plain(compose(news, thread, event)),
        due_at=due,
    )


def thread_of(incident: Incident | None, attempt: Attempt | None) -> str:
    """What messages belong together by."""
    return f"incident-{incident.pk}" if incident is not None else f"attempt-{attempt.pk if attempt else 0}"


def _after_quiet(route: Route, thread: str, now: datetime) -> datetime:
    """When a repeat may be told: so long after what was last told of the same."""
    told = Q(state=DeliveryState.SENT) | Q(state=DeliveryState.WAITING)
    last = Delivery.objects.filter(told, channel=route.channel, thread=thread).order_by("-id").first()
    if last is None:
        return now
    return max(now, (last.sent_at or last.due_at) + timedelta(minutes=route.quiet_minutes))
