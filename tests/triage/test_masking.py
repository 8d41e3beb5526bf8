"""Secrets never reach the store, and nothing else changes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triage.services.masking import SecretMask, mask_text


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
    ],
)
def test_hostile_lines_take_linear_time(piece: bytes) -> None:
    def cost(content: bytes) -> float:
        began = time.process_time()
        SecretMask()(content)
        return time.process_time() - began

    cost(b"password=warm up")
    assert cost(piece) < 16 * cost(piece[: len(piece) // 4]) + 0.2
