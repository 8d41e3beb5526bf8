"""What makes two attempts the same failure: never a job id, a host or a rank."""

from __future__ import annotations

import hashlib
import re

from engine.model import Fingerprint, Role, RootCause
from engine.origin import Places
from engine.told import Told

VERSION = "1"


def fingerprint(told: Told, root: RootCause | None) -> Fingerprint:
    choice = told.choice
    parts = {"outcome": told.outcome.outcome.value, "domain": choice.domain, "sub_domain": choice.sub_domain}
    if root is not None:
        parts["rule"] = root.rule
        first = choice.roots[0]
        if first.detail:
            parts["message"] = _shape(first.placed[0].hit.text, told.places)
            frames = [
                f
                for f in first.placed[0].hit.frames.splitlines()
                if "site-packages" not in f and "dist-packages" not in f
            ]
            if frames:
                parts["frame"] = re.sub(r":\d+", "", frames[-1].rsplit("/", 1)[-1])
    else:
        symptoms = sorted({f.rule.id for f in told.findings if f.aside is None and f.role is Role.SYMPTOM})
        parts["symptoms"] = " ".join(symptoms[:6])
    text = "\n".join(f"{key}={parts[key]}" for key in sorted(parts))
    return Fingerprint(key=hashlib.sha256(text.encode()).hexdigest()[:16], parts=parts, version=VERSION)


def _shape(text: str, places: Places) -> str:
    """A message without what differs from one attempt to the next: numbers, hosts, paths, quoted values."""
    text = text[:200]
    for node in places.attempt.nodes:
        text = text.replace(node, "<node>")
    text = re.sub(r"0x[0-9a-fA-F]+", "<hex>", text)
    text = re.sub(r"/[\w./-]+", "<path>", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "<value>", text)
    return re.sub(r"\d+", "<n>", text)
