"""Sending what is planned: one worker a delivery, tried again until it is taken, in order within a thread."""

from __future__ import annotations

import uuid
from datetime import timedelta

import msgspec
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from triage.channels.base import ChannelError, Message, Receipt
from triage.models import Channel, Delivery, DeliveryState, News
from triage.services.clock import database_now
from triage.services.facts import short, told
from triage.services.messages import as_plain, trial
from triage.services.queue import Job, enqueue

LEASE = timedelta(seconds=120)
"""A worker that hasn't finished by then is taken for dead. Longer than any delivery may last."""
FIRST_WAIT, LONGEST_WAIT = 15, 1800
"""Seconds between two tries, doubled each time."""
MAX_TRIES = 20
"""With the waits above: about seven hours."""


class ResendRefused(ValueError):
    """It can't be sent again; one sentence that says why."""


def due_deliveries(limit: int = 500) -> list[int]:
    """Ids of what may go out now, the oldest first. Only the first that waits of each thread of a channel."""
    now = database_now()
    earlier = Delivery.objects.filter(
        channel=OuterRef("channel"), thread=OuterRef("thread"), state=DeliveryState.WAITING, id__lt=OuterRef("id")
    )
    free = Q(lease=None) | Q(leased_until__lt=now)
    waiting = Delivery.objects.filter(free, state=DeliveryState.WAITING, due_at__lte=now, channel__enabled=True)
    return list(waiting.filter(~Exists(earlier)).order_by("id").values_list("id", flat=True)[:limit])


@transaction.atomic
def lease_delivery(pk: int) -> Delivery | None:
    """Takes a delivery for this worker; None when it went out, isn't due, or another one has it."""
    now = database_now()
    delivery = (
        Delivery.objects.select_for_update(of=("self",), skip_locked=True)
        .select_related("channel")
        .filter(pk=pk, state=DeliveryState.WAITING, due_at__lte=now, channel__enabled=True)
        .first()
    )
    if delivery is None or (delivery.lease is not None and delivery.leased_until and delivery.leased_until > now):
        return None
    delivery.lease, delivery.leased_until, delivery.tries = uuid.uuid4(), now + LEASE, delivery.tries + 1
    delivery.save(update_fields=["lease", "leased_until", "tries"])
    return delivery


def first_receipt(delivery: Delivery) -> str:
    """The receiver's name for the first message of the thread; empty when this is the first."""
    sent = Delivery.objects.filter(
        channel=delivery.channel_id, thread=delivery.thread, state=DeliveryState.SENT
    ).exclude(receipt="")
    return sent.order_by("id").values_list("receipt", flat=True).first() or ""


def record_sent(delivery: Delivery, receipt: Receipt) -> bool:
    """It was taken. False when another worker has taken the delivery over meanwhile."""
    values = {"state": DeliveryState.SENT, "sent_at": Now(), "receipt": short(receipt.name, 500)}
    return _finish(delivery, trouble="", **values)


def record_trouble(delivery: Delivery, error: ChannelError) -> bool:
    """It was not taken: tried again later, or given up when that can't help. False when it was taken over."""
    trouble = told(str(error), 500)
    if error.permanent or delivery.tries >= MAX_TRIES:
        return _finish(delivery, state=DeliveryState.FAILED, trouble=trouble)
    wait = min(FIRST_WAIT * 2 ** (delivery.tries - 1), LONGEST_WAIT)
    due = Now() + timedelta(seconds=max(wait, error.retry_after or 0))
    return _finish(delivery, trouble=trouble, due_at=due)


def _finish(delivery: Delivery, **values: object) -> bool:
    mine = Delivery.objects.filter(pk=delivery.pk, lease=delivery.lease)
    return bool(mine.update(lease=None, leased_until=None, **values))


@transaction.atomic
def send_again(pk: int, actor: AbstractBaseUser) -> Delivery:
    """Sends a delivery once more, as it was. One that waits is sent now. Raises ResendRefused."""
    old = Delivery.objects.select_for_update(of=("self",)).select_related("channel").filter(pk=pk).first()
    if old is None:
        raise ResendRefused("This delivery is gone.")
    if not old.channel.enabled:
        raise ResendRefused(f"{old.channel.name} is switched off. Switch it on first.")
    if old.state == DeliveryState.WAITING:
        Delivery.objects.filter(pk=pk).update(due_at=Now())
        enqueue(Job.DELIVER, pk)
        return old
    new = Delivery.objects.create(
        channel=old.channel, route=old.route, event=old.event, news=old.news, incident=old.incident,
        attempt=old.attempt, thread=old.thread, covers=old.covers, message=old.message, again=old, asked_by=actor,
    )  # fmt: skip
    enqueue(Job.DELIVER, new.pk)
    return new


@transaction.atomic
def send_trial(channel: Channel, actor: AbstractBaseUser) -> Delivery:
    """A test message over a channel."""
    delivery = Delivery.objects.create(
        channel=channel, news=News.TEST, thread="test", message=as_plain(trial(channel.name)), asked_by=actor
    )
    enqueue(Job.DELIVER, delivery.pk)
    return delivery


@transaction.atomic
def drop(pk: int) -> bool:
    """Gives up on a delivery that waits. False when it doesn't wait any more."""
    return bool(Delivery.objects.filter(pk=pk, state=DeliveryState.WAITING).update(state=DeliveryState.DROPPED))


def message_of(delivery: Delivery) -> Message:
    """What goes out."""
    return msgspec.convert(delivery.message, Message)


def forget_deliveries(older_than: timedelta) -> int:
    """Removes the log of long ago. Returns how many. The first of each thread stays: later messages join it."""
    old = Delivery.objects.filter(created_at__lt=Now() - older_than).exclude(state=DeliveryState.WAITING)
    later = Delivery.objects.filter(
        channel=OuterRef("channel"), thread=OuterRef("thread"), created_at__gte=Now() - older_than
    )
    return old.filter(~Exists(later)).delete()[0]
