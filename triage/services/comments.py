"""Comments on attempts and incidents: added, edited and deleted by their authors, with a trace; mentions are told."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.utils import timezone

from triage.access.viewer import seen_people
from triage.models import Attempt, Comment, CommentRevision, EventKind, Incident, Notification
from triage.services.events import record_event
from triage.services.facts import keepable
from triage.services.masking import mask_text
from triage.services.quotes import Quote
from triage.text import readable

MAX_LENGTH = 20_000
MAX_QUOTES = 10
MENTION = re.compile(r"(?<![\w@/.+-])@([\w.@+-]{1,150})")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


class CommentRefused(ValueError):
    """The comment can't be kept; one sentence that says why."""


@transaction.atomic
def add_comment(
    subject: Attempt | Incident,
    actor: AbstractBaseUser,
    text: str,
    *,
    quotes: Sequence[Quote] = (),
    form_key: uuid.UUID | None = None,
) -> Comment:
    """Says something about an attempt or an incident. With the same `form_key` again it is kept once.

    Secrets in the text are masked. Raises CommentRefused.
    """
    text = _checked(text, bool(quotes))
    if len(quotes) > MAX_QUOTES:
        raise CommentRefused(f"At most {MAX_QUOTES} quotes a comment.")
    where: dict[str, Any] = {"attempt": subject} if isinstance(subject, Attempt) else {"incident": subject}
    people = _mentioned(text)
    values = {
        **where,
        "author": actor,
        "text": text,
        "quotes": list(quotes),
        "mentions": sorted(user.get_username() for user in people),
    }
    if form_key is not None:
        comment, created = Comment.objects.get_or_create(form_key=form_key, defaults=values)
        if not created:
            if comment.author_id != actor.pk:
                raise CommentRefused("This form was sent by somebody else.")
            return comment
    else:
        comment = Comment.objects.create(**values)
    record_event(EventKind.COMMENT_ADDED, **where, actor=actor, comment=comment.pk)
    _tell(comment, people)
    return comment


@transaction.atomic
def edit_comment(comment_id: int, actor: AbstractBaseUser, text: str, *, seen: str) -> Comment:
    """Changes one's own comment; the text before stays as a revision. `seen` is the text that was edited.

    Raises CommentRefused, PermissionError.
    """
    comment = _own(comment_id, actor)
    text = _checked(text, bool(comment.quotes))
    if text == comment.text:
        return comment
    if _same(comment.text) != _same(seen):
        raise CommentRefused("The comment was edited in another window meanwhile. Nothing was saved.")
    CommentRevision.objects.create(comment=comment, text=comment.text)
    people = _mentioned(text)
    comment.text, comment.edited_at = text, timezone.now()
    comment.mentions = sorted(user.get_username() for user in people)
    comment.save(update_fields=["text", "edited_at", "mentions"])
    record_event(
        EventKind.COMMENT_EDITED,
        attempt=comment.attempt,
        incident=comment.incident,
        actor=actor,
        comment=comment.pk,
    )
    _tell(comment, people)
    return comment


@transaction.atomic
def delete_comment(comment_id: int, actor: AbstractBaseUser) -> Comment:
    """Empties one's own comment and its revisions; that it was there stays. Raises PermissionError."""
    comment = _own(comment_id, actor)
    comment.revisions.all().delete()
    comment.notifications.all().delete()
    comment.text, comment.quotes, comment.mentions, comment.deleted_at = "", [], [], timezone.now()
    comment.save(update_fields=["text", "quotes", "mentions", "deleted_at"])
    record_event(
        EventKind.COMMENT_DELETED,
        attempt=comment.attempt,
        incident=comment.incident,
        actor=actor,
        comment=comment.pk,
    )
    return comment


def read_notifications(user: AbstractBaseUser, ids: Sequence[int] | None = None) -> int:
    """Marks a person's notifications as read, all of them without `ids`."""
    mine = Notification.objects.filter(user=user, read_at__isnull=True)
    if ids is not None:
        mine = mine.filter(pk__in=list(ids))
    return mine.update(read_at=timezone.now())


def _own(comment_id: int, actor: AbstractBaseUser) -> Comment:
    comment = (
        Comment.objects.select_for_update(of=("self",)).select_related("attempt", "incident").filter(pk=comment_id)
    ).first()
    if comment is None or comment.deleted_at is not None:
        raise CommentRefused("The comment is gone.")
    if comment.author_id != actor.pk:
        raise PermissionError("only its author may change a comment")
    return comment


def _checked(text: str, quoted: bool) -> str:
    text = mask_text(keepable(readable(_same(text))))
    if not text and not quoted:
        raise CommentRefused("Write something, or quote a line.")
    if len(text) > MAX_LENGTH:
        raise CommentRefused(f"At most {MAX_LENGTH:,} characters.")
    return text


def _same(text: str) -> str:
    """As a form sends it and as it was kept are the same text."""
    return text.replace("\r\n", "\n").strip()


def _mentioned(text: str) -> list[User]:
    names = {name.rstrip(".-+@") for name in MENTION.findall(_CODE.sub(" ", text))}
    return list(seen_people().filter(username__in=names)[:50]) if names else []


def _tell(comment: Comment, people: Sequence[User]) -> None:
    """Each person once a comment, however often it is edited; not its author."""
    Notification.objects.bulk_create(
        [
            Notification(
                user=user,
                actor=comment.author,
                kind="mention",
                comment=comment,
                incident=comment.incident,
                attempt=comment.attempt,
            )
            for user in people
            if user.pk != comment.author_id
        ],
        ignore_conflicts=True,
    )
