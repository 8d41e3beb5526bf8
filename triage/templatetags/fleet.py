"""Tags of the list, of nodes, insights and rules: addresses of lists and nodes, percentages, small figures."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django import template
from django.urls import reverse
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from triage.selectors.nodes import Device, NodePage
from triage.selectors.query import WORD, Query, Term
from triage.selectors.rules import plain_title
from triage.web import inbox

register = template.Library()

_PLAIN = re.compile(r"(?!\.+$)[\w.-]+\Z", re.ASCII)


@register.simple_tag
@lru_cache(maxsize=8192)
def page_url(name: str, pk: int) -> str:
    """The page of one thing. Lists ask for many of them, and most of them again."""
    return reverse(name, args=[pk])


@register.simple_tag
@lru_cache(maxsize=8192)
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


@register.simple_tag
def device_url(node: NodePage, device: Device) -> str:
    """The failures that are blamed on a node and began at one of its devices."""
    cluster = (Term("cluster", node.cluster.name),) if node.cluster.name else ()
    terms = (Term("node", node.name), *cluster, Term(WORD, f"{node.name}/{device.name}"))
    return inbox.list_address(str(Query((*terms, Term("after", node.days[0].day.isoformat())))))


@register.filter
def hours(value: float | None) -> str:
    """GPU-hours: one decimal below 10,000, none above."""
    if value is None:
        return ""
    return f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


@register.filter
def between(value: float | None) -> str:
    """Hours between failures: `18 m`, `14.0 h`, `8 d`; `no end` where there may be none."""
    if value is None:
        return "no end"
    if value < 1:
        return f"{value * 60:.1f} m" if value < 1 / 6 else f"{value * 60:.0f} m"
    return f"{value:.1f} h" if value < 100 else f"{value / 24:.0f} d"


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


@register.filter
def signed(value: float) -> str:
    """A change against before: `+2`, `−73`, `same`."""
    whole = round(value)
    if not whole:
        return "same"
    return f"+{whole:,}" if whole > 0 else f"\u2212{-whole:,}"


@register.filter
def of(part: float, whole: float) -> str:
    """What per cent a part is of the whole, without decimals."""
    return f"{part / whole * 100:.0f}" if whole else "0"


@register.filter
def cut_family(rule_id: str) -> str:
    return rule_id.partition(".")[2] or rule_id


@register.filter
def open_title(title: str) -> str:
    """A rule's title with what a match fills in left open."""
    return plain_title(title)


@register.filter
def sentence(text: str) -> str:
    """With a capital at the beginning and a full stop at the end."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") if text else ""


@register.filter
def coded(text: str) -> SafeString:
    """A rule's words with what stands in backticks as code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # one without its partner
        return escape(text)
    shown = ((format_html("<code>{}</code>", part) if place % 2 else escape(part),) for place, part in enumerate(parts))
    return format_html_join("", "{}", shown)
