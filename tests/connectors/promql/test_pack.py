"""The ready queries, and configuration of queries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from connectors.base import ConfigError
from connectors.promql.connector import PromConnector
from connectors.promql.pack import load, ready
from connectors.promql.steps import MAX_POINTS, chunks, plan
from engine.idle import FULL
from engine.ruleset import load_ruleset


def test_every_metric_that_a_rule_reads_is_asked_for() -> None:
    asked = [match for query in ready().queries for match in re.findall(r'__name__=~"([^"]+)"', query.query)]
    names = {
        name for matcher in load_ruleset().metric_matchers if matcher.spec.metric for name in matcher.spec.metric.names
    }
    names |= set(FULL)
    assert len(names) > 30
    missing = {name for name in names if not any(re.fullmatch(form.replace("\\\\", "\\"), name) for form in asked)}
    plain = {query.query.split("{", 1)[0] for query in ready().queries}
    assert missing - plain == set()


def test_the_pack_knows_every_exporter_that_it_names() -> None:
    pack = ready()
    assert {query.exporter for query in pack.queries} == set(pack.exporters)
    assert len({query.name for query in pack.queries}) == len(pack.queries) >= 25


def test_matchers_and_selector_replace_and_add() -> None:
    config = {"queries": ["up"], "matchers": {"node": 'nodename=~"{nodes_regex}"'}, "selector": 'cluster="a"'}
    (query,) = load(config, "connector promql")
    assert query.template.fill({"nodes_regex": "gx-01|gx-02"}) == 'up{cluster="a", nodename=~"gx-01|gx-02"}'


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"url": None}, "url: is missing"),
        ({"url": "https://me:pw@prom.example.org"}, "url: holds a user or password"),
        ({"url": "prom.example.org"}, "url: must be like https://"),
        ({"password": "hunter2", "username": "me"}, "password: must be env:NAME or file:PATH"),
        ({"token": "env:T", "username": "me", "password": "env:P"}, "token and password exclude each other"),
        ({"username": "me"}, "username and password belong together"),
        ({"client_cert": "/c"}, "client_cert and client_key belong together"),
        ({"queries": ["nope"]}, "queries: 'nope' is not one of"),
        ({"matchers": {"nope": "x"}}, "matchers: 'nope' is not one of"),
        ({"selector": "{a=1}"}, "selector: must be label matchers"),
        ({"extra": [{"name": "x"}]}, "extra: "),
        ({"extra": [{"name": "../x", "query": "up"}]}, "a name has small letters"),
        ({"extra": [{"name": "x", "query": "up{node=~{nodes_regex}}"}]}, "must stand inside of quotes"),
        ({"extra": [{"name": "x", "query": 'up{node="{nodes_regex}"}'}]}, "needs =~"),
        ({"extra": [{"name": "x", "query": 'up{node="{nodse}"}'}]}, "{nodse} is not one of"),
        ({"step": 0}, "step: must be a number from 1"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_a_wrong_configuration_is_told_by_its_key(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PromConnector.from_config({"url": "http://prom.example.org", **config})
    assert says in str(refused.value) and "hunter2" not in str(refused.value) and "pw@" not in str(refused.value)


def test_chunks_join_without_gap_or_repeat_and_stay_within_the_limit() -> None:
    start, end = 1_780_000_007.0, 1_780_000_007.0 + 7 * 86400
    several = list(chunks(start, end, 15))
    moments = [at for chunk in several for at in range(chunk.start, chunk.end + 1, chunk.step)]
    assert moments == list(range(1_780_000_020, 1_780_604_806, 15))
    assert len(several) == 4 and max(chunk.points for chunk in several) == MAX_POINTS
    assert all(chunk.start % 15 == 0 for chunk in several)


@pytest.mark.parametrize("series", [0, 1, 64, 512, 100_000])
@pytest.mark.parametrize("hours", [0.01, 1, 24, 168, 2000])
def test_a_plan_has_no_moment_twice_and_ends_at_full_resolution(series: int, hours: float) -> None:
    end = 1_780_000_000.0
    planned = plan(end - hours * 3600, end, 15, series, 200_000)
    moments = [at for chunk in planned for at in range(chunk.start, chunk.end + 1, chunk.step)]
    assert moments == sorted(set(moments)) and len(moments) < 11_200
    assert end - moments[-1] < 15 and moments[-1] - moments[-2] == 15
    assert moments[0] - (end - hours * 3600) <= max(chunk.step for chunk in planned)
    assert all(chunk.points <= MAX_POINTS for chunk in planned)
