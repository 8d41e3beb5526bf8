"""What is told of a series without its samples being decoded."""

from __future__ import annotations

import msgspec
import pytest

from connectors.promql.parser import Result, Samples, number_of, read_answer, samples_of


def results(kind: str, result: str) -> list[Result]:
    answer = read_answer(f'{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}'.encode())
    assert answer.data
    return list(answer.data.result)


def test_a_series_tells_its_number_of_samples_and_its_first_and_last_time() -> None:
    (result,) = results("matrix", '[{"metric":{"gpu":"3"},"values":[[1762143000,"31"],[1762143015.5,"NaN"]]}]')
    samples = samples_of(result)
    assert samples == Samples(b'[1762143000,"31"],[1762143015.5,"NaN"]', 2, 1762143000.0, 1762143015.5)


def test_a_moment_is_one_sample() -> None:
    (result,) = results("vector", '[{"metric":{},"value":[1762143000.25,"7"]}]')
    assert samples_of(result) == Samples(b'[1762143000.25,"7"]', 1, 1762143000.25, 1762143000.25)
    assert number_of(result) == 7


def test_a_native_histogram_has_no_samples_of_this_kind() -> None:
    (result,) = results("matrix", '[{"metric":{},"histograms":[[1762143000,{"count":"2"}]],"values":[]}]')
    assert samples_of(result) is None


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"<html>", b'{"status":', b"[]"])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_answer(body)
