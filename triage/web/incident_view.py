"""The list of incidents as an address: what is looked for, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.http import urlencode

from triage import words
from triage.models import Severity
from triage.selectors import incident_lists as lists
from triage.selectors.filters import printable_value
from triage.web.forms import number

VIEWS = (("open", "Open"), ("mine", "Yours"), ("resolved", "Resolved"))
NOBODY = "none"
"""As an assignee: those that nobody has."""
SEVERITIES = [(value, f"Severity {value}") for value in Severity.values] + [(lists.UNSAID, "Severity not said")]
ORDERS = {
    lists.IncidentOrder.LAST: "Last to fail first",
    lists.IncidentOrder.LOST: "Most GPU-hours lost",
    lists.IncidentOrder.ATTEMPTS: "Most attempts",
    lists.IncidentOrder.SEVERITY: "Worst severity",
}


@dataclass(frozen=True)
class ListView:
    """What an address of the list says."""

    view: str = "open"
    domain: str = ""
    assignee: str = ""
    severity: str = ""
    search: str = ""
    order: lists.IncidentOrder = lists.IncidentOrder.LAST

    @classmethod
    def of(cls, params: QueryDict) -> ListView:
        """Unknown values are left out."""
        view, domain, order = params.get("view", ""), params.get("domain", ""), params.get("sort", "")
        assignee, severity = params.get("assignee", ""), params.get("severity", "")
        return cls(
            view if view in dict(VIEWS) else "open",
            domain if domain in words.DOMAINS else "",
            assignee if assignee == NOBODY or number(assignee) is not None else "",
            severity if severity in {str(value) for value, _ in SEVERITIES} else "",
            printable_value(params.get("q", "")),
            lists.IncidentOrder(order) if order in ORDERS else lists.IncidentOrder.LAST,
        )

    def narrowed(self, user: User) -> lists.IncidentFilter:
        mine = self.view == "mine"
        return lists.IncidentFilter(
            state="resolved" if self.view == "resolved" else "open",
            assignee=user.pk if mine else number(self.assignee),
            nobodys=self.assignee == NOBODY and not mine,
            domain=self.domain,
            severity=number(self.severity),
            search=self.search,
        )

    @property
    def filtered(self) -> bool:
        return bool(self.domain or self.assignee or self.severity or self.search)

    @property
    def title(self) -> str:
        """What it is narrowed to, in words."""
        said = [dict(VIEWS)[self.view].lower(), self.domain, f"severity {self.severity}" if self.severity else ""]
        return ", ".join(filter(None, [*said, self.search]))

    def params(self, **more: str) -> str:
        values = {
            "view": self.view if self.view != "open" else "", "domain": self.domain, "assignee": self.assignee,
            "severity": self.severity, "q": self.search,
            "sort": self.order.value if self.order != lists.IncidentOrder.LAST else "", **more,
        }  # fmt: skip
        return urlencode({name: value for name, value in values.items() if value})
