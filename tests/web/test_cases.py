"""Judged cases: precision and confusion by domain, what is worth a look, and the way out as labelled bundles."""

from __future__ import annotations

import io
import re
import tarfile

import pytest
import yaml
import zstandard
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from tests.web.test_hostile import FORBIDDEN, SCRIPT, hostile_story
from triage.models import Attempt
from triage.services.verdicts import Answer, confirm, correct, withdraw

URL = "/rules/cases/"


def judge(attempt: Attempt, by: User, domain: str = "", sub_domain: str = "", kind: str = "wrong_cause") -> None:
    if not domain:
        confirm(attempt.pk, by, diagnosis_id=attempt.diagnosis_id)
        return
    nodes = ["gx-04"] if kind == "wrong_node" else ["gx-02"]
    correct(
        attempt.pk, by, diagnosis_id=attempt.diagnosis_id or 0, seen=None, kind=kind, reason=f"because {domain}",
        answer=Answer(domain, sub_domain, f"It was {domain}", nodes),
    )  # fmt: skip


@pytest.fixture
def judged(make_attempt: MakeAttempt, ada: User) -> list[Attempt]:
    """Hardware: two right, one wrong node, two wrong causes; software: one right, one said and taken back."""
    made = [make_attempt() for _ in range(5)] + [make_attempt(stories.key_error()) for _ in range(2)]
    judge(made[0], ada)
    judge(made[1], ada)
    judge(made[2], ada, "hardware", "nvlink", "wrong_node")
    judge(made[3], ada, "network", "infiniband")
    judge(made[4], ada, "network", "roce")
    judge(made[5], ada)
    judge(made[6], ada)
    made[6].refresh_from_db()
    withdraw(made[6].pk, ada, verdict_id=made[6].verdict_id or 0)
    return made


def rows(page: str) -> list[int]:
    return [int(pk) for pk in re.findall(r'<th scope="row"><a href="/attempts/(\d+)/"', page)]


def names(answer: object) -> set[str]:
    content = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        return {info.name for info in tar.getmembers()}


def test_precision_and_what_people_said_instead_stand_by_domain(signed_in: Client, judged: list[Attempt]) -> None:
    page = signed_in.get(URL).content.decode()
    hardware = page[page.index('href="?engine=hardware"') : page.index('href="?engine=software"')]
    assert "2 of 5" in hardware and "40 %" in hardware and "12 to 77" in hardware
    assert "?kind=wrong_cause&amp;engine=hardware&amp;people=network" in hardware
    assert "?kind=wrong_node&amp;engine=hardware" in hardware
    assert "1 of 1" in page[page.index('href="?engine=software"') :], "what was taken back doesn't count"


def test_corrections_come_before_what_was_right_and_can_be_narrowed(signed_in: Client, judged: list[Attempt]) -> None:
    pks = [attempt.pk for attempt in judged]
    assert rows(signed_in.get(URL).content.decode()) == [pks[4], pks[3], pks[2], pks[5], pks[1], pks[0]]
    narrowed = {
        "kind=confirmed": [pks[5], pks[1], pks[0]],
        "kind=corrected": [pks[4], pks[3], pks[2]],
        "kind=wrong_cause&engine=hardware&people=network": [pks[4], pks[3]],
        "rule=python.exception": [pks[5]],
        "kind=disagrees": [],
        "kind=nonsense": [],
    }
    for query, found in narrowed.items():
        assert rows(signed_in.get(f"{URL}?{query}").content.decode()) == found, query


def test_what_fits_is_taken_away_with_a_label_each(signed_in: Client, judged: list[Attempt]) -> None:
    page = signed_in.get(f"{URL}?kind=wrong_cause").content.decode()
    assert "2 cases, 0 B unpacked" in page and 'name="kind" value="wrong_cause"' in page
    answer = signed_in.get("/rules/cases.tar.zst?kind=wrong_cause&names=1")
    assert 'filename="faultline-cases.tar.zst"' in answer["Content-Disposition"]
    found = names(answer)
    assert {name.rpartition("/")[2] for name in found} == {"attempt.yaml", "expected.yaml"} and len(found) == 4
    assert signed_in.get("/rules/cases.tar.zst?kind=disagrees")["Location"] == URL


def test_one_attempt_is_taken_away_with_or_without_a_verdict(signed_in: Client, judged: list[Attempt]) -> None:
    labelled = names(signed_in.get(reverse("attempt-bundle", args=[judged[0].pk])))
    assert any(name.endswith("/expected.yaml") for name in labelled)
    plain = names(signed_in.get(reverse("attempt-bundle", args=[judged[6].pk])))
    assert [name.rpartition("/")[2] for name in plain] == ["attempt.yaml"]
    assert signed_in.get(reverse("attempt-bundle", args=[999_999])).status_code == 404


def test_hostile_texts_are_harmless_on_the_page_and_in_the_label(
    signed_in: Client, make_attempt: MakeAttempt, ada: User
) -> None:
    attempt = make_attempt(hostile_story(), name=f"job{SCRIPT}", id="a/../b", user="\u202ejun")
    correct(
        attempt.pk, ada, diagnosis_id=attempt.diagnosis_id or 0, seen=None, kind="wrong_cause",
        reason=f"{SCRIPT}\u202e: - {{",
        answer=Answer("network", "roce", f"{SCRIPT}: *x", ["gx\n- evil"]),
    )  # fmt: skip
    page = signed_in.get(URL).content.decode()
    assert SCRIPT not in page and not FORBIDDEN.search(page)
    content = b"".join(signed_in.get("/rules/cases.tar.zst").streaming_content)
    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompressobj().decompress(content))) as tar:
        label = next(info for info in tar.getmembers() if info.name.endswith("expected.yaml"))
        document = yaml.safe_load(tar.extractfile(label).read())  # type: ignore[union-attr]
    assert document["domain"] == "network" and document["root"]["nodes"] == ["gx\n- evil"]


def test_without_a_verdict_the_page_says_how_one_comes_about(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    page = signed_in.get(URL).content.decode()
    assert "Nobody has judged a diagnosis yet" in page and "Take them away" not in page


@pytest.mark.parametrize("url", [URL, "/rules/cases.tar.zst", "/attempts/1/bundle.tar.zst"])
def test_cases_are_for_people_who_signed_in(url: str, client: Client, db: None) -> None:
    assert "/sign-in/" in client.get(url)["Location"]
