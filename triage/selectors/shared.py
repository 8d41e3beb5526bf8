"""What a share link shows: one attempt or one incident, without people's names, with secrets masked once more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from triage.models import Attempt, Diagnosis, Incident
from triage.selectors.attempts import get_attempt
from triage.selectors.evidence import Story, tell
from triage.selectors.guides import guide
from triage.selectors.incidents import IncidentDetail, incident_detail
from triage.services.masking import mask_text

MASK = "●●●"


class Mask:
    """Hides secrets, and the names of those who ran the jobs wherever they stand as a word: in paths, in titles."""

    def __init__(self, names: Iterable[str]) -> None:
        known = sorted({name for name in names if name}, key=len, reverse=True)
        words = "|".join(re.escape(name) for name in known)
        self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE) if known else None

    def text(self, text: str) -> str:
        text = mask_text(text)
        return self._names.sub(MASK, text) if self._names else text

    def tree(self, value: Any) -> Any:
        """The same for every string inside lists and dictionaries. Keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(item) for item in value]
        return value


def shared_attempt(attempt_id: int) -> tuple[Attempt, Story | None, Mask]:
    """An attempt with its masked diagnosis; evidence leads nowhere but to this page. Raises Attempt.DoesNotExist."""
    attempt = get_attempt(attempt_id)
    mask = Mask([attempt.user, attempt.workload.user])
    if attempt.diagnosis is None:
        return attempt, None, mask
    contract = mask.tree(attempt.diagnosis.contract)
    masked = Diagnosis(
        pk=attempt.diagnosis.pk,
        contract=contract,
        ruleset=attempt.diagnosis.ruleset,
        engine_version=attempt.diagnosis.engine_version,
        created_at=attempt.diagnosis.created_at,
    )
    return attempt, tell(masked, "#"), mask


def shared_incident(incident_id: int) -> tuple[IncidentDetail, Mask]:
    """An incident with what its page shows, and the mask for it. Raises Incident.DoesNotExist."""
    detail = incident_detail(incident_id)
    names = [attempt.user for attempt in detail.attempts] + [share.user for share in detail.workloads]
    return detail, Mask(names)


def plain_title(subject: Attempt | Incident) -> str:
    """The verdict for a preview in a chat, without a word of log text: the rule's own title, else the domain; and the
    nodes.
    """
    rule = subject.rule if isinstance(subject, Incident) else subject.diagnosis.rule if subject.diagnosis else ""
    if isinstance(subject, Attempt) and subject.verdict is not None and subject.verdict.is_correction:
        rule = ""  # it was another cause
    known = guide(rule) if rule else None
    title = known.title.partition("{")[0].strip(" :,(") if known else ""
    return title
