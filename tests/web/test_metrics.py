"""Metrics as plots and as a table: thinned out without losing a peak, gaps stay gaps, odd files are named."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client
from django.urls import reverse

from tests.web.conftest import MakeAttempt
from tests.web.test_evidence import Collected, collected
from tests.web.test_hostile import FORBIDDEN, SCRIPT
from triage.selectors.metric_plots import charts, measured, metric_streams, rows
from triage.selectors.timeline_axis import LEFT, RIGHT, Axis

__all__ = ["collected"]
START = 1791165600.0  # 2026-10-05T02:00:00Z
NOTHING: dict[str, Any] = {"evidence": [], "root_cause": None}


def answer(*series: tuple[dict[str, str], list[tuple[float, float]]]) -> bytes:
    result = [{"metric": labels, "values": [[at, str(value)] for at, value in samples]} for labels, samples in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def temperature(device: int, samples: list[tuple[float, float]]) -> tuple[dict[str, str], list[tuple[float, float]]]:
    return {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "gx-01", "device": f"nvidia{device}"}, samples


def test_a_single_peak_among_many_samples_survives(collected: Collected) -> None:
    samples = [(START + second, 60.0) for second in range(3600)]
    samples[1234] = (START + 1234, 99.0)
    attempt = collected({"metrics/temp.json": answer(temperature(0, samples))})
    made, left_out = charts(measured(attempt, metric_streams(attempt)), NOTHING, Axis(START, START + 3600))
    line = made[0].lines[0]
    assert (made[0].name, made[0].unit, left_out) == ("DCGM_FI_DEV_GPU_TEMP", "\u00b0C", 0)
    assert len(line.values) <= 2 * (RIGHT - LEFT) / 2 + 2, "at most two a bucket"
    assert max(value for value in line.values if value is not None) == 99.0
    assert line.x == sorted(set(line.x)) and line.x[0] >= LEFT and line.x[-1] <= RIGHT + 1
    assert None not in line.values


def test_missing_samples_are_a_gap_and_what_is_outside_is_left_out(collected: Collected) -> None:
    samples = [(START + 15 * n, 60.0 + n % 2) for n in range(240) if not 100 < n < 140]
    samples += [(START + 10_000, 20.0), (START - 10_000, 20.0)]
    attempt = collected({"metrics/temp.json": answer(temperature(0, samples))})
    made, _ = charts(measured(attempt, metric_streams(attempt)), NOTHING, Axis(START, START + 3600))
    line = made[0].lines[0]
    assert line.values.count(None) == 1 and made[0].low == 60.0
    assert [row.samples for row in rows(measured(attempt, metric_streams(attempt)), NOTHING)] == [len(samples)]


def test_of_many_series_the_cited_and_the_outlying_are_drawn(collected: Collected) -> None:
    many = [temperature(n, [(START + 15 * k, 60.0) for k in range(100)]) for n in range(30)]
    many[17] = temperature(17, [(START + 15 * k, 95.0) for k in range(100)])
    attempt = collected({"metrics/temp.json": answer(*many)})
    cited = {
        "evidence": [{"stream": "metrics/temp.json", "node": "gx-01", "device": "nvidia3", "source": "metric"}],
        "root_cause": None,
    }
    found = measured(attempt, metric_streams(attempt))
    made, _ = charts(found, cited, Axis(START, START + 1500))
    labels = [line.label for line in made[0].lines]
    assert labels[0] == "gx-01 nvidia3" and made[0].lines[0].cited and "gx-01 nvidia17" in labels
    assert made[0].left_out == 30 - len(labels)
    assert rows(found, cited)[0].device == "nvidia3"


def test_files_that_are_no_answer_are_named_and_hostile_labels_are_harmless(
    signed_in: Client, collected: Collected
) -> None:
    labels = {"__name__": SCRIPT, "Hostname": "gx-01\u202e", "device": "</script>"}
    attempt = collected(
        {"metrics/odd.json": b"\x00 not json", "metrics/ok.json": answer((labels, [(START, 1.0), (START + 60, 2.0)]))}
    )
    found = measured(attempt, metric_streams(attempt))
    assert len(found.troubles) == 1 and found.troubles[0].startswith("metrics/odd.json: ")
    page = signed_in.get(reverse("attempt-metrics", args=[attempt.pk])).content.decode()
    assert "Not read." in page and SCRIPT not in page and not FORBIDDEN.search(page)
    assert signed_in.get(reverse("attempt-metrics-data", args=[attempt.pk])).status_code == 404, "no diagnosis yet"


def test_an_attempt_without_metrics_says_so_and_loads_no_plots(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    assert "No metrics were collected" in signed_in.get(reverse("attempt-metrics", args=[attempt.pk])).content.decode()
    data = signed_in.get(reverse("attempt-metrics-data", args=[attempt.pk])).json()
    assert data["charts"] == [] and data["axis"]["left"] == LEFT and data["zone"] == "UTC"
    page = signed_in.get(reverse("attempt", args=[attempt.pk])).content.decode()
    assert "uPlot" not in page and "data-metrics" not in page
