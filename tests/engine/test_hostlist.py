"""Lists of hosts as Slurm writes them are read and written."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hostlist import MOST, BadHostlist, collect_hostlist, expand_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("gx-01", ["gx-01"]),
        ("node-[01-03,07],login1", ["node-01", "node-02", "node-03", "node-07", "login1"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("gpu[1-2]-ib0", ["gpu1-ib0", "gpu2-ib0"]),
        ("b,a,b,,c,", ["b", "a", "c"]),
        ("[0-2]", ["0", "1", "2"]),
    ],
)
def test_a_list_is_read_in_its_order(text: str, names: list[str]) -> None:
    assert expand_hostlist(text) == names


def test_repeated_names_stay_when_they_count() -> None:
    assert expand_hostlist("[0,1,0]", allow_duplicates=True) == ["0", "1", "0"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n[1-", "nothing closes"),
        ("n1]", "nothing opens"),
        ("n[1[2]]", "brackets within brackets"),
        ("n[3-1]", "ends before it begins"),
        ("n[a-b]", "no number and no range: 'a-b'"),
        ("n[]", "no number and no range"),
        ("n[0-99999999999]", f"more than {MOST} names"),
        ("n[0-999][0-999]", f"more than {MOST} names"),
        ("a[0-60000],b[0-60000]", f"more than {MOST} names"),
    ],
)
def test_a_list_that_is_wrong_or_without_end_is_refused_at_once(text: str, words: str) -> None:
    began = time.process_time()
    with pytest.raises(BadHostlist, match=words.replace("[", r"\[")):
        expand_hostlist(text)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gx-02", "gx-01", "gx-03", "login"], "gx-[01-03],login"),
        (["n9", "n10", "n12"], "n[9-10,12]"),
        (["n1"], "n1"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
        ([], ""),
    ],
)
def test_names_are_written_short(names: list[str], text: str) -> None:
    assert collect_hostlist(names) == text


def test_what_is_no_name_is_not_written() -> None:
    with pytest.raises(BadHostlist, match="no name of a host"):
        collect_hostlist(["n1", "n[2]"])


@given(st.lists(st.from_regex(r"[a-z]{0,2}-?[0-9]{0,4}[a-z]?", fullmatch=True).filter(bool), max_size=30))
def test_what_was_written_reads_as_it_was(names: list[str]) -> None:
    assert sorted(expand_hostlist(collect_hostlist(names))) == sorted(set(names))
