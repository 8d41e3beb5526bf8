"""Links to Grafana Explore, which shows the same query over the same window."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from connectors.values import checked_url, text


class Explore(msgspec.Struct, frozen=True):
    """A data source of a Grafana. Without an address or uid there are no links."""

    kind: str
    """loki | prometheus"""
    url: str = ""
    datasource: str = ""
    """Its uid."""

    KEYS: ClassVar = ("grafana_url", "grafana_datasource")

    @classmethod
    def parse(cls, config: Mapping[str, Any], kind: str, where: str) -> Explore:
        """From a connector's plain values (KEYS). Raises ConfigError."""
        url = config.get("grafana_url")
        return cls(
            kind,
            checked_url(url, f"{where}: grafana_url") if url else "",
            text(config, "grafana_datasource", where) or "",
        )

    def link(self, query: str, start: float, end: float) -> str:
        """The address that shows a query from `start` to `end` (epoch seconds). Empty without an address or uid."""
        if not self.url or not self.datasource:
            return ""
        source = {"type": self.kind, "uid": self.datasource}
        asked: dict[str, Any] = {"refId": "A", "expr": query, "datasource": source, "editorMode": "code"}
        asked |= {"queryType": "range"} if self.kind == "loki" else {"range": True}
        pane = {
            "datasource": self.datasource,
            "queries": [asked],
            "range": {"from": str(int(start * 1000)), "to": str(int(end * 1000))},
        }
        panes = msgspec.json.encode({"a": pane}).decode()
        return f"{self.url}/explore?schemaVersion=1&panes={urllib.parse.quote(panes, safe='')}"
