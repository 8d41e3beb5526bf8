"""Links to Grafana Explore, which shows the same query over the same window."""

from __future__ import annotations

import urllib.parse
from typing import Any

import msgspec


def explore_link(base: str, datasource: str, kind: str, query: str, start: float, end: float) -> str:
    """The address of Explore for a query of a data source (its uid; kind loki or prometheus) from `start` to `end`
    (epoch seconds). Empty without a base or uid.
    """
    if not base or not datasource:
        return ""
    source = {"type": kind, "uid": datasource}
    asked: dict[str, Any] = {"refId": "A", "expr": query, "datasource": source, "editorMode": "code"}
    asked |= {"queryType": "range"} if kind == "loki" else {"range": True}
    pane = {
        "datasource": datasource,
        "queries": [asked],
        "range": {"from": str(int(start * 1000)), "to": str(int(end * 1000))},
    }
    panes = msgspec.json.encode({"a": pane}).decode()
    return f"{base}/explore?schemaVersion=1&panes={urllib.parse.quote(panes, safe='')}"
