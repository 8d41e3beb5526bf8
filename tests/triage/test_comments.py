"""Comments: kept once, changed by their authors alone, with a trace; mentions and quotes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt, Comment, Notification, TimelineEvent
from triage.services.bundles import import_bundle
from triage.services.comments import CommentRefused, add_comment, delete_comment, edit_comment, read_notifications
from triage.services.quotes import QuoteRefused, quote_form, read_quote
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect


@pytest.fixture
def maren(db: None) -> User:
    return User.objects.create_user("maren")


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def collected(db: None, tmp_path: Path) -> Attempt:
    attempt = import_bundle(cast.archive(tmp_path / "b.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    return attempt


def test_a_comment_is_kept_once_however_often_its_form_is_sent(diagnosed: MakeAttempt, maren: User, ada: User) -> None:
    attempt, key = diagnosed(), uuid.uuid4()
    first = add_comment(attempt, maren, "I drained **node-02**.\r\n", form_key=key)
    assert add_comment(attempt, maren, "I drained **node-02**.", form_key=key) == first
    assert first.text == "I drained **node-02**."
    assert TimelineEvent.objects.get(kind="comment.added").payload == {"comment": first.pk}
    with pytest.raises(CommentRefused):
        add_comment(attempt, ada, "mine", form_key=key)


def test_a_mention_tells_each_person_once_and_never_the_author(diagnosed: MakeAttempt, maren: User, ada: User) -> None:
    gone = User.objects.create_user("gone", is_active=False)
    text = "@ada, see `@maren` and mail@gone.example @nobody @ada. @maren @gone"
    comment = add_comment(diagnosed(), maren, text)
    assert comment.mentions == ["ada", "maren"]
    assert [note.user for note in Notification.objects.all()] == [ada], gone
    edit_comment(comment.pk, maren, "@ada again", seen=comment.text)
    assert Notification.objects.count() == 1
    assert read_notifications(ada) == 1 and read_notifications(ada) == 0


def test_only_its_author_changes_a_comment_and_a_trace_stays(diagnosed: MakeAttempt, maren: User, ada: User) -> None:
    comment = add_comment(diagnosed(), maren, "first")
    for change in (lambda: edit_comment(comment.pk, ada, "x", seen="first"), lambda: delete_comment(comment.pk, ada)):
        with pytest.raises(PermissionError):
            change()
    comment = edit_comment(comment.pk, maren, "second", seen="first")
    assert [revision.text for revision in comment.revisions.all()] == ["first"] and comment.edited_at
    with pytest.raises(CommentRefused, match="another window"):
        edit_comment(comment.pk, maren, "third", seen="first")
    deleted = delete_comment(comment.pk, maren)
    assert (deleted.text, deleted.revisions.count()) == ("", 0), "what was deleted is gone"
    assert Comment.objects.filter(pk=comment.pk, deleted_at__isnull=False).exists(), "that it was there stays"
    with pytest.raises(CommentRefused, match="gone"):
        edit_comment(comment.pk, maren, "back", seen="")
    assert list(TimelineEvent.objects.filter(kind__startswith="comment.").values_list("kind", flat=True)) == [
        "comment.added",
        "comment.edited",
        "comment.deleted",
    ]


def test_secrets_in_a_comment_are_masked_and_empty_ones_refused(diagnosed: MakeAttempt, maren: User) -> None:
    comment = add_comment(diagnosed(), maren, "it used HF_TOKEN=hf_abcdefghij0123456789klmnop\x00")
    assert "hf_abc" not in comment.text and "HF_TOKEN=*" in comment.text
    for text in ("", "  \r\n ", "x" * 20_001):
        with pytest.raises(CommentRefused):
            add_comment(diagnosed("2"), maren, text)


def test_a_quote_holds_the_lines_as_the_stream_has_them(collected: Attempt, maren: User) -> None:
    quote = read_quote("syslog/gx-02.log:1", collected.pk)
    assert quote["lines"] == [cast.SYSLOG.splitlines()[0]] and (quote["first"], quote["last"]) == (1, 1)
    assert read_quote(f"{collected.pk}:syslog/gx-02.log:1-2")["lines"] == cast.SYSLOG.splitlines()
    assert read_quote("syslog/gx-02.log:L1-L2", collected.pk)["last"] == 2
    assert read_quote(quote_form(quote)) == quote
    masked = read_quote("applog/train.log:6", collected.pk)
    assert "hf_abc" not in masked["lines"][0]
    comment = add_comment(collected, maren, "", quotes=[quote])
    assert comment.quotes == [quote], "a quote alone is a comment"


@pytest.mark.parametrize(
    "form",
    ["", "syslog/gx-02.log", "syslog/gx-02.log:0", "syslog/gx-02.log:2-1", "syslog/gx-02.log:1-99",
     "syslog/gx-02.log:3", "../../etc/passwd:1", "999999:syslog/gx-02.log:1", "syslog/gx-02.log:1-2-3"],
)  # fmt: skip
def test_lines_that_are_not_there_are_refused_in_a_sentence(form: str, collected: Attempt) -> None:
    with pytest.raises(QuoteRefused, match=r"[.:]"):
        read_quote(form, collected.pk)
