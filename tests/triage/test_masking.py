"""Secrets never reach the store, and nothing else changes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from django.contrib.auth.models import User
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.base import CollectionReport
from engine.bundle import open_bundle
from engine.ruleset import load_ruleset
from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.blobs import BlobStore
from triage.blobs.writer import pieces
from triage.models import Attempt, TimelineEvent, Verdict, VerdictKind
from triage.services.attempts import record_attempt
from triage.services.collecting import add_collection, finish_collection, lease_collection
from triage.services.masking import SecretMask, mask_text
from triage.services.nodes import add_note
from triage.services.sources import blob_store
from triage.services.triage import begin_triage, fail_triage, request_triage
from triage.services.verdicts import Answer, correct

HERE = Path(__file__).parent
SECRETS = yaml.safe_load((HERE / "secrets.yaml").read_text())
CASES = HERE.parent / "engine" / "cases"


@pytest.mark.parametrize("known", SECRETS, ids=[known["kind"] for known in SECRETS])
def test_every_kind_of_secret_on_the_list_is_hidden_in_its_place(known: dict[str, str]) -> None:
    line, secret = known["line"], known["secret"]
    at = line.index(secret)
    masked = mask_text(line)
    assert secret not in masked and "****" in masked[at : at + len(secret)]
    assert len(masked) == len(line)
    assert SecretMask()(f"before\n{line}\nafter\n".encode()) == f"before\n{masked}\nafter\n".encode()


def ordinary_lines() -> Iterator[bytes]:
    """The logs of every case that the engine is judged by, and every line that a rule gives as an example."""
    for path in sorted(CASES.glob("*.tar.zst")):
        with open_bundle(path) as bundle:
            for stream in bundle.streams:
                with stream.open() as content:
                    yield from pieces(content)
    for rule in load_ruleset().specs:
        for line in (*(example.line for example in rule.examples.match), *rule.examples.no_match):
            yield line.encode() + b"\n"


def test_of_ordinary_lines_fewer_than_one_in_a_thousand_is_touched() -> None:
    lines = touched = 0
    for piece in ordinary_lines():
        masked = SecretMask()(piece)
        lines += piece.count(b"\n")
        if masked != piece:
            touched += sum(a != b for a, b in zip(piece.split(b"\n"), masked.split(b"\n"), strict=True))
    assert lines > 50_000
    assert touched / lines < 0.001, f"{touched} of {lines}"


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("cloning https://ada:s3cr3t!pw@git.example/team/repo.git", "s3cr3t!pw"),
        ("redis://:hunter2@cache-1:6379/0", "hunter2"),
        ("> Authorization: Bearer abcDEF123.456-xyz", "abcDEF123.456-xyz"),
        ('{"authorization": "Basic YWRhOmh1bnRlcjI="}', "YWRhOmh1bnRlcjI="),
        ("curl -H 'authorization: token 0123456789abcdef0123'", "0123456789abcdef0123"),
        ("DB_PASSWORD=x9f8a7 next=1", "x9f8a7"),
        ('config: {"password": "open sesame1"}'.replace(" sesame1", "sesame1"), "opensesame1"),
        ("mysql --password hunter22 --host db", "hunter22"),
        ("exported HF_TOKEN=hf_abcdefghij0123456789klmnop", "hf_abcdefghij0123456789klmnop"),
        ("token hf_abcdefghij0123456789klmnop in use", "hf_abcdefghij0123456789klmnop"),
        ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
        ("aws_access_key_id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"),
        ("GET https://b.s3.example/k?X-Amz-Signature=abcdef0123456789&x=1", "abcdef0123456789"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "eyJzdWIiOiIxMjM0NTY3ODkwIn0"),
    ],
)  # fmt: skip
def test_a_secret_becomes_asterisks_and_its_line_keeps_its_length(line: str, secret: str) -> None:
    masked = mask_text(line)
    assert secret not in masked
    assert "*" * min(4, len(secret)) in masked
    assert len(masked) == len(line)


@pytest.mark.parametrize(
    "line",
    [
        "Nov  3 04:11:57 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 149, NETIR_LINK_EVT XC0 i0 Link 10 (0x004545c6)",
        "KeyError: 'input_ids'",
        "max_tokens=4096 pad_token=<|endoftext|> eos_token: </s> vocab_size=128256",
        "tokens per second: 123456.7 | lm loss: 2.345",
        "passed: 12 tests, bypass=1, compass: north",
        "password authentication failed for user",
        "[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2021, remote process exited",
        "gx-01:793704:794012 [3] NCCL INFO comm 0x55d0c0ffee00 rank 3 nranks 16 cudaDev 3 busId 61000 - Init COMPLETE",
        "http://10.0.0.1:29500/health?probe=1 answered 200",
        "key_padding_mask_shape: torch.Size([4, 4096])",
        "srun: error: gx-07: task 12: Exited with exit code 1 -p gpu --mem 64",
        "curl: (7) Failed to connect to 10.0.0.1 port 443 -u https://registry:443/v2",
        "MAX_TOKEN=4096 PAD_TOKEN=endoftext EOS_TOKEN_ID=128009",
        "loading tokenizer from models/meta-llama-3.1-70b-instruct-fp8, key=model.layers.10.self_attn.q_proj.weight"[
            :60
        ],
        "nvidia-peermem cookie 0x7f3a5e8c, mlx5_core 0000:3b:00.0: cookie: 12",
        "slurmctld: sched: Allocate JobId=48213 NodeList=gx-[01-04] #CPUs=512 Partition=gpu",
        "MUNGE: decode failed: Expired credential",
        "s3://training-data-eu-central-1/shards/000123.tar: 206 Partial Content",
        "torch.distributed.elastic.rendezvous: rdzv_endpoint=gx-01.cluster.example:29500 token=3",
    ],
)
def test_evidence_stays_as_it_is(line: str) -> None:
    assert mask_text(line) == line


def test_a_private_key_is_hidden_from_its_first_line_to_its_last() -> None:
    text = "before\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1rZXk=\n-----END OPENSSH PRIVATE KEY-----\nafter\n"
    masked = mask_text(text)
    assert "b3BlbnNz" not in masked and "aC1rZXk=" not in masked
    assert masked.startswith("before\n-----BEGIN") and masked.endswith("-----\nafter\n")
    assert [len(line) for line in masked.split("\n")] == [len(line) for line in text.split("\n")]


def test_a_private_key_that_spans_pieces_is_hidden_in_all_of_them() -> None:
    mask = SecretMask()
    pieces = [b"-----BEGIN PRIVATE KEY-----\nMIIabc\n", b"MIIdef\n", b"MIIghi\n-----END PRIVATE KEY-----\nplain\n"]
    assert b"".join(map(mask, pieces)).count(b"MII") == 0
    assert mask(b"plain again\n") == b"plain again\n"
    assert mask.masked == 1


def test_what_was_hidden_is_counted() -> None:
    mask = SecretMask()
    mask(b"password=hunter2\nHF_TOKEN=hf_abcdefghij0123456789klmnop\nplain\n")
    assert mask.masked == 2


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_length_and_line_ends_never_change(piece: bytes) -> None:
    masked = SecretMask()(piece)
    assert len(masked) == len(piece)
    assert [i for i, byte in enumerate(masked) if byte == 10] == [i for i, byte in enumerate(piece) if byte == 10]


@settings(deadline=None)
@given(st.text(max_size=60).filter(str.isprintable))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = mask_text(f"password={text} https://ada:{text}@host/ Authorization: Bearer {text}")
    assert mask_text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        b"password=" * 100_000,
        b"://a:b" * 160_000,
        b"eyJaaaaaaaaaaa." * 60_000,
        b"wandb " * 160_000,
        b'token="' * 140_000,
        b"curl -u " * 120_000,
        b"mysql -p" * 120_000,
        b"cookie: a=" * 100_000,
        b"--token " * 120_000,
        b'"username":"a","key"' * 50_000,
        b"sk-a" * 250_000,
        b"://" + b"a" * 1_000_000,
    ],
)
def test_hostile_lines_take_linear_time(piece: bytes) -> None:
    def cost(content: bytes) -> float:
        began = time.process_time()
        SecretMask()(content)
        return time.process_time() - began

    cost(b"password=warm up")
    assert cost(piece) < 16 * cost(piece[: len(piece) // 4]) + 0.2


def test_threads_mask_at_the_same_time() -> None:
    """As those of a web server do."""
    piece = b"iteration 12 | lm loss 2.345\n" * 20_000 + b"password=hunter22\n"
    with ThreadPoolExecutor(8) as pool:
        masked = list(pool.map(lambda _: SecretMask()(piece), range(64)))
    assert all(b"hunter22" not in one for one in masked)


def test_a_secret_stored_before_its_kind_was_known_is_hidden_when_it_is_read(data_dir: Path) -> None:
    content = b"before\ncurl -u ada:hunter22 https://x\nafter\n"
    stored = BlobStore(data_dir / "blobs").put(io.BytesIO(content))
    with blob_store().reader(stored.key) as reader:
        lines = [line.raw for line in reader.read_lines(1, 10)]
    assert lines == [b"before", b"curl -u ada:******** https://x", b"after"]
    with blob_store().open(stored.key) as whole:
        assert whole.read() == content.replace(b"hunter22", b"********")


# --- what is kept beside the logs -----------------------------------------------------------------------------------
TOKEN = "hf_abcdefghij0123456789klmnop"


@pytest.mark.django_db
def test_a_secret_in_what_scheduler_or_source_says_is_not_kept() -> None:
    attempt, _ = record_attempt(cast.facts(name=f"run --hf-token={TOKEN}", reason=f"Prolog: HF_TOKEN={TOKEN}"))
    collection, _ = add_collection(attempt, "c1/loki", "ref", label=f"https://ada:hunter22@loki/?token={TOKEN}")
    request_triage(attempt.pk)
    begin_triage(attempt.pk)
    lease = lease_collection(collection.pk)
    assert lease is not None
    report = CollectionReport(source="loki", status="missing", note=f"401: {TOKEN}", query=f"https://a:{TOKEN}@loki/")
    assert finish_collection(lease, [], [report])
    fail_triage(attempt.pk, f"could not read https://ada:{TOKEN}@store/")

    attempt = Attempt.objects.select_related("workload").get(pk=attempt.pk)
    kept = [attempt.workload.name, attempt.reason, attempt.search, attempt.triage_reason]
    kept += [str(row) for row in attempt.collections.values("label", "reports")]
    kept += [str(payload) for payload in attempt.events.values_list("payload", flat=True)]
    assert not [text for text in kept if TOKEN in str(text) or "hunter22" in str(text)]
    assert "401: ****" in str(attempt.collections.get().reports)


@pytest.mark.django_db
def test_a_secret_that_a_person_types_is_not_kept(diagnosed: MakeAttempt, django_user_model: type[User]) -> None:
    attempt = diagnosed("48213")
    ada = django_user_model.objects.create_user("ada")
    add_note(attempt.cluster, "gx-02", ada, f"logs in with {TOKEN}")
    assert attempt.diagnosis is not None
    right = Answer("software", "user_code", "a missing key")
    correct(
        attempt.pk, ada, diagnosis_id=attempt.diagnosis.pk, seen=None, kind=VerdictKind.WRONG_CAUSE,
        reason=f"seen with {TOKEN}", answer=right,
    )  # fmt: skip
    kept = [str(event.payload) for event in TimelineEvent.objects.all()]
    kept += list(Verdict.objects.values_list("reason", flat=True))
    assert any("seen with ****" in text for text in kept)
    assert not [text for text in kept if TOKEN in text]
