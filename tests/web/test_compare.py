"""An attempt against an earlier one: differences only, from the rows, the diagnoses and the first lines of the logs."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from tests.web.test_evidence import ATTEMPT, Collected, collected
from tests.web.test_hostile import FORBIDDEN, SCRIPT
from triage.models import Attempt, Workload
from triage.selectors.compare import bases, compare
from triage.selectors.config_lines import settings_in
from triage.selectors.pod_settings import is_pods, pod_settings

__all__ = ["ATTEMPT", "collected"]


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("  tensor_model_parallel_size ...................... 8", [("tensor_model_parallel_size", "8")]),
        ("torchrun train.py --lr 1e-4 --seq-length=4096 --bf16", [("--lr", "1e-4"), ("--seq-length", "4096")]),
        ("NCCL_IB_TIMEOUT=22", [("NCCL_IB_TIMEOUT", "22")]),
        ('  "global_batch_size": 1024,', [("global_batch_size", "1024")]),
        ("image: registry.example/train:24.10", [("image", "registry.example/train:24.10")]),
        ("NCCL version 2.21.5+cuda12.4", [("NCCL version", "2.21.5+cuda12.4")]),
        ("RuntimeError: CUDA error", []),
        ("INFO: starting", []),
        ("MASTER_PORT=29500", []),
        ("start_time: 2026-11-03 01:00:00", []),
        ("iteration 5/100 loss: 2.5", []),
    ],
)
def test_a_setting_is_known_by_its_shape(line: str, settings: list[tuple[str, str]]) -> None:
    assert settings_in(line) == settings


def test_only_what_differs_is_told(make_attempt: MakeAttempt) -> None:
    first = make_attempt(
        stories.key_error(), id="900", number=1, nodes=["gx-01", "gx-09"], ended_at=stories.END - timedelta(hours=3)
    )
    second = make_attempt(id="900", number=2, nodes=["gx-01", "gx-02"])
    made = compare(second, first)
    names = {change.name: (change.before, change.after) for change in made.facts}
    assert made.nodes.added == ("gx-02",) and made.nodes.removed == ("gx-09",) and made.nodes.kept == 1
    assert names["Verdict"] == (first.title, second.title) and "First error" in names
    assert "State" not in names and "Queue" not in names, "both failed in the same queue"


def test_earlier_runs_of_the_same_name_can_be_a_base_too(make_attempt: MakeAttempt) -> None:
    other = make_attempt(id="700", name="llama-70b", ended_at=stories.END - timedelta(days=1))
    make_attempt(id="701", name="another", ended_at=stories.END - timedelta(days=1))
    own = make_attempt(id="900", number=1, name="llama-70b", ended_at=stories.END - timedelta(days=2))
    last = make_attempt(id="900", number=2, name="llama-70b")
    assert [base.pk for base in bases(last)] == [own.pk, other.pk]


def test_the_attempt_says_what_changed_and_leads_to_all_of_it(signed_in: Client, make_attempt: MakeAttempt) -> None:
    first = make_attempt(stories.key_error(), id="900", number=1, nodes=["gx-01", "gx-09"])
    second = make_attempt(id="900", number=2, nodes=["gx-01", "gx-02"])
    page = signed_in.get(reverse("attempt", args=[second.pk])).content.decode()
    assert "Against attempt 1" in page and f"/attempts/{second.pk}/compare/?base={first.pk}" in page
    assert "Against" not in signed_in.get(reverse("attempt", args=[first.pk])).content.decode()
    full = signed_in.get(reverse("compare", args=[second.pk])).content.decode()
    assert "What changed since attempt 1" in full and "<del><code>gx-09</code></del>" in full
    assert "<ins><code>gx-02</code></ins>" in full


def test_settings_of_both_logs_are_compared_and_what_is_equal_is_counted(
    signed_in: Client, collected: Collected
) -> None:
    head = "torchrun train.py --lr {lr} --tp 8\nNCCL_IB_TIMEOUT=22\nMASTER_PORT={port}\n"
    before = collected({"applog/out.log": head.format(lr="1e-4", port=1).encode()})
    again = ATTEMPT.replace("number: 1", "number: 2")
    log = head.format(lr="3e-4", port=2) + f"--evil {SCRIPT} run_name: \u202ex\n"
    now = collected({"attempt.yaml": again.encode(), "applog/out.log": log.encode()})
    made = compare(now, before)
    assert [(c.name, c.before, c.after) for c in made.settings][:1] == [("--lr", "1e-4", "3e-4")]
    assert made.settings_read and made.settings_alike == 2
    page = signed_in.get(reverse("compare", args=[now.pk]), {"base": before.pk}).content.decode()
    assert "<ins><code>3e-4</code></ins>" in page and not FORBIDDEN.search(page) and SCRIPT not in page


def test_an_attempt_without_another_says_so(signed_in: Client, make_attempt: MakeAttempt) -> None:
    alone = make_attempt(id="900", name="only-one")
    assert "Nothing to compare with" in signed_in.get(reverse("compare", args=[alone.pk])).content.decode()
    assert signed_in.get(reverse("compare", args=[alone.pk]), {"base": alone.pk}).status_code == 404
    assert signed_in.get(reverse("compare", args=[alone.pk]), {"base": 10**12}).status_code == 404
    assert Attempt.objects.count() == Workload.objects.count() == 1


def pods(**changes: str) -> bytes:
    container = {
        "name": "pytorch", "image": changes.get("image", "registry.example/train:24.10"), "args": ["--lr", "1e-4"],
        "env": [{"name": "NCCL_DEBUG", "value": changes.get("debug", "WARN")}, {"name": "HF_TOKEN", "value": "hf_x"}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }  # fmt: skip
    told = {"name": "pytorch", "imageID": f"registry.example/train@sha256:{changes.get('digest', 'aaa')}"}
    pod = {"kind": "Pod", "spec": {"containers": [container]}, "status": {"containerStatuses": [told]}}
    return json.dumps({"kind": "List", "items": [pod, pod]}).encode()


def test_images_and_what_else_the_pods_carry_are_compared_and_nothing_private(
    collected: Collected,
) -> None:
    before = collected({"scheduler/pods.json": pods()})
    again = ATTEMPT.replace("number: 1", "number: 2").encode()
    now = collected({"attempt.yaml": again, "scheduler/pods.json": pods(digest="bbb", debug="INFO")})
    found = {change.name: (change.before, change.after) for change in compare(now, before).settings}
    assert found == {
        "image digest of pytorch": ("sha256:aaa", "sha256:bbb"),  # the same tag, another image
        "NCCL_DEBUG of pytorch": ("WARN", "INFO"),
    }
    assert compare(now, before).settings_alike == 3, "image, arguments, limit"


@pytest.mark.parametrize(
    "content", [b"\n", b"[]", b"{", b'{"items": 3}', b'{"items": [1, {"spec": {"containers": {}}}]}']
)
def test_pods_that_cannot_be_read_tell_nothing(content: bytes, collected: Collected) -> None:
    attempt = collected({"scheduler/pods.json": content})
    assert pod_settings(filter(is_pods, attempt.streams.all())) == {}


def test_a_base_that_is_pinned_stays_while_one_walks_from_attempt_to_attempt(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    first, second, third = (make_attempt(id="900", number=number) for number in (1, 2, 3))
    page = signed_in.get(reverse("attempt", args=[third.pk])).content.decode()
    assert f'href="/attempts/{third.pk}/?base={second.pk}">pin it</a>' in page and "Against attempt 2<" in page
    pinned = signed_in.get(reverse("attempt", args=[third.pk]), {"base": first.pk}).content.decode()
    assert "Against attempt 1, pinned" in pinned and f'href="/attempts/{second.pk}/?base={first.pk}"' in pinned
    assert f"/attempts/{third.pk}/compare/?base={first.pk}" in pinned
    compared = signed_in.get(reverse("compare", args=[third.pk]), {"base": first.pk}).content.decode()
    assert f'href="/attempts/{second.pk}/compare/?base={first.pk}"' in compared and "Attempt 1: the base" in compared
    for odd in ("x", "0", str(third.pk), str(10**18), str(10**30)):
        assert signed_in.get(reverse("attempt", args=[third.pk]), {"base": odd}).status_code == 200
