"""What an address names, or a page that says that it isn't there. What somebody doesn't see isn't there for them."""

from __future__ import annotations

from django.http import Http404

from triage.models import Attempt, Incident
from triage.selectors.attempts import get_attempt
from triage.selectors.incidents import get_incident


def attempt_or_404(pk: int) -> Attempt:
    """The attempt of this number. Raises Http404."""
    try:
        return get_attempt(pk)
    except (Attempt.DoesNotExist, OverflowError):
        raise Http404 from None


def diagnosed_or_404(pk: int, why: str = "This attempt has no diagnosis yet.") -> Attempt:
    """The attempt of this number, which has a diagnosis. Raises Http404."""
    found = attempt_or_404(pk)
    if found.diagnosis is None:
        raise Http404(why)
    return found


def incident_or_404(pk: int) -> Incident:
    """The incident of this number. Raises Http404."""
    try:
        return get_incident(pk)
    except (Incident.DoesNotExist, OverflowError):
        raise Http404 from None
