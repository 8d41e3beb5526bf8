"""Attempts changed on purpose, each with what an expert would say of it now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.engine.evidence import Evidence

NOBODY = {"domain": "unattributed", "sub_domain": "none", "root": {"nodes": []}}


@dataclass(frozen=True)
class Variant:
    name: str
    label: dict[str, Any]
    evidence: Callable[[], Evidence]


VARIANTS: list[Variant] = []
