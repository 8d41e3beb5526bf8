"""Tags of the list, of nodes, insights and rules: addresses of lists and nodes, percentages, small figures."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from django import template
from django.urls import reverse

from triage.selectors.query import Query, Term
from triage.web import inbox

register = template.Library()

_PLAIN = re.compile(r"(?!\.+$)[\w.-]+\Z", re.ASCII)


@register.simple_tag
def node_url(name: str, cluster: str = "") -> str:
    """The page of a node. A name that a browser would read as a path or as anything else goes into a parameter."""
    if _PLAIN.match(name):
        address = reverse("node", args=[name])
        return f"{address}?cluster={quote(cluster, safe='')}" if cluster else address
    params = {"name": name, "cluster": cluster} if cluster else {"name": name}
    return f"{reverse('nodes')}?{inbox.encoded(params)}"


@register.simple_tag
def list_url(*pairs: str) -> str:
    """The failures with these fields: `{% list_url "domain" "hardware" "ended" "7d" %}`; empty values are left out."""
    terms = tuple(Term(name, str(value)) for name, value in zip(pairs[::2], pairs[1::2], strict=True) if value)
    return inbox.list_address(str(Query(terms)))


@register.filter
def hours(value: float | None) -> str:
    """GPU-hours: one decimal below 10,000, none above."""
    if value is None:
        return ""
    return f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


@register.filter
def percent(value: float) -> str:
    """A share as a percentage with two meaningful digits: 0.0075 is `0.75`, 0.43 is `43`."""
    shown = value * 100
    if shown == 0:
        return "0"
    if shown < 1:
        return f"{shown:.2f}"
    return f"{shown:.1f}" if shown < 10 else f"{shown:.0f}"


@register.filter
def attribute(value: Any, name: str) -> Any:
    """`{{ row|attribute:key }}` of a dictionary whose key is a variable."""
    return value.get(name)
