"""A real Alertmanager."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.peers.metrics import Server


class Alertmanager(Server):
    """Takes alerts and tells nobody."""

    program = "prometheus-alertmanager"
    _ready = "/-/ready"

    def _before(self) -> None:
        (self.folder / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """Those that fire now."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found
