"""Tags and filters of the pages. Each returns escaped HTML or plain text; log text and names become printable first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from triage import times, words
from triage.models import EventKind
from triage.text import cut, printable

register = template.Library()

REFERENCES = re.compile(r"\s*\[(e\d+(?:,\s*e\d+)*)\]")


@register.simple_tag
@lru_cache(maxsize=512)
def icon(name: str, classes: str = "") -> SafeString:
    """One Lucide icon out of the sprite. Decoration only: the word beside it carries the meaning."""
    return format_html(
        '<svg class="i{}" aria-hidden="true" focusable="false"><use href="{}#i-{}"></use></svg>',
        f" {classes}" if classes else "",
        static("icons/sprite.svg"),
        name,
    )


@register.simple_tag
@lru_cache(maxsize=1024)
def chip(domain: str, sub_domain: str = "") -> SafeString:
    """Domain as icon, word and hue; the sub-domain quietly beside it."""
    known = domain if domain in words.DOMAINS else "unattributed"
    return format_html(
        '<span class="chip" data-domain="{}">{}{} <span>{}</span></span>',
        known,
        icon(known),
        words.domain(domain),
        words.sub_domain(sub_domain),
    )


@register.simple_tag
@lru_cache(maxsize=512)
def status(state: str, symbol: str, text: str) -> SafeString:
    return format_html('<span class="status" data-s="{}">{}{}</span>', state, icon(symbol), text)


@register.simple_tag
def coverage(state: str) -> SafeString:
    symbol, word = words.COVERAGE.get(state, ("dot", words.plain(state)))
    return status(state, symbol, word)


# ---------- text ----------


@register.filter
def show(value: Any) -> str:
    """Text of unknown origin, with its invisible characters made visible."""
    return printable(str(value)) if value is not None else ""


@register.filter
def short(value: Any, limit: int = 200) -> str:
    """The same, cut to `limit` characters."""
    head, left = cut(show(value), limit)
    return f"{head}\u2026" if left else head


@register.filter
def word(value: str, kind: str = "plain") -> str:
    """A term of the vocabulary as a word; `kind` is domain, sub_domain, outcome, source or plain."""
    return getattr(words, kind)(str(value))


@register.filter
def counted(number: int, noun: str) -> str:
    """`{{ 3|counted:"line" }}` is `3 lines`; `"entry,entries"` gives both forms."""
    one, _, many = noun.partition(",")
    return words.count(number, one, many)


@register.filter
def thousands(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


@register.filter
def filesize(number: int) -> str:
    return times.size(number)


@register.filter
def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers with runs joined: `1, 4, 8 to 15`. More than twelve parts are counted instead."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(set(numbers)), None]:
        if run and number == run[-1] + 1:
            run.append(number)
            continue
        if run:
            parts += (
                [str(run[0])]
                if len(run) == 1
                else [f"{run[0]}, {run[1]}"]
                if len(run) == 2
                else [f"{run[0]} to {run[-1]}"]
            )
        run = [] if number is None else [number]
    return ", ".join(parts) if len(parts) <= 12 else ", ".join(parts[:12]) + f" and {len(parts) - 12} more"


# ---------- times ----------


def _time(value: Any, text: str, moment: datetime) -> SafeString:
    return format_html('<time datetime="{}" title="{}">{}</time>', times.machine(moment), times.full(moment), text)


@register.filter
def clock(value: datetime | str | None) -> SafeString | str:
    """Time of day, for where the day is plain from the context."""
    moment = times.parse(value)
    return _time(value, times.clock(moment), moment) if moment else ""


@register.filter
def moment(value: datetime | str | None) -> SafeString | str:
    """Day and time of day, saying in which zone."""
    at = times.parse(value)
    return _time(value, f"{times.day(at)} {times.clock(at)} {times.zone_word(at)}", at) if at else ""


@register.filter
def daytime(value: datetime | str | None) -> SafeString | str:
    """Day, hour and minute."""
    at = times.parse(value)
    return _time(value, f"{times.day(at)} {times.minute(at)}", at) if at else ""


@register.filter
def age(value: datetime | str | None) -> SafeString | str:
    at = times.parse(value)
    return _time(value, times.age(at), at) if at else ""


@register.filter
def clock_zone(value: datetime | str | None) -> SafeString | str:
    """Time of day with its zone, for where a page names the zone once."""
    at = times.parse(value)
    return _time(value, f"{times.clock(at)} {times.zone_word(at)}", at) if at else ""


@register.filter
def minute(value: datetime | str | None) -> str:
    """Hour and minute with the zone."""
    at = times.parse(value)
    return f"{times.minute(at)} {times.zone_word(at)}" if at else ""


@register.filter
def typed(value: datetime | str | None) -> str:
    """A moment as it can be typed into a field that leads to a time."""
    at = times.parse(value)
    return f"{times.told(at):%Y-%m-%d %H:%M:%S}" if at else ""


@register.filter
def zone_of(value: datetime | str | None) -> str:
    """The zone in which this page tells a moment."""
    at = times.parse(value)
    return times.zone_word(at) if at else ""


@register.filter
def clock_ms(value: datetime | str | None) -> SafeString | str:
    """Time of day to the millisecond, for lines side by side."""
    moment = times.parse(value)
    return _time(value, times.clock(moment, True), moment) if moment else ""


@register.filter
def figure(value: float) -> str:
    """A measured value, four digits at most: `1,410`, `0.25`, `1.2e+09`."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


@register.filter
def duration(value: Any) -> str:
    return times.duration(value)


# ---------- evidence ----------


def evidence_link(ref: str, trail: Mapping[str, Any]) -> SafeString:
    """`e1` as a link to its line, or as plain text when the diagnosis doesn't carry it."""
    item = trail.get(ref)
    if item is None:
        return escape(ref)
    return format_html('<a class="ev" href="{}" title="{}">{}</a>', item.url, item.place, ref)


@register.filter
def evidence(refs: Iterable[str], trail: Mapping[str, Any]) -> SafeString:
    """Links to evidence, at most eight; the rest is counted (all of them stand in the trail of the page)."""
    refs = list(refs)
    links = format_html_join(mark_safe(" "), "{}", ((evidence_link(ref, trail),) for ref in refs[:8]))  # nosec B308
    if len(refs) > 8:
        links = format_html('{} <span class="dim sm">and {} more</span>', links, len(refs) - 8)
    return links


@register.filter
def cited(sentence: str, trail: Mapping[str, Any]) -> SafeString:
    """A sentence of the engine with its `[e1, e2]` turned into links, bound to the word before by a no-break space."""
    parts: list[str] = []
    end = 0
    for match in REFERENCES.finditer(sentence):
        parts.append(escape(sentence[end : match.start()]))
        refs = [ref.strip() for ref in match.group(1).split(",")]
        parts.append("&nbsp;" + evidence(refs, trail))
        end = match.end()
    parts.append(escape(sentence[end:]))
    return mark_safe("".join(parts))  # nosec B308 B703: each part is escaped


@register.filter
def uncited(refs: Iterable[str], sentence: str | None) -> list[str]:
    """The evidence that a sentence doesn't name already."""
    named = {ref.strip() for match in REFERENCES.finditer(sentence or "") for ref in match.group(1).split(",")}
    return [ref for ref in refs if ref not in named]


@register.filter
def event_word(kind: str) -> str:
    """What happened, of an entry of the record."""
    return str(EventKind(kind).label) if kind in EventKind.values else words.plain(kind.replace(".", " "))


@register.filter
def evidence_url(ref: str, trail: Mapping[str, Any]) -> str:
    item = trail.get(ref)
    return item.url if item else ""


@register.filter
def one_evidence(ref: str, trail: Mapping[str, Any]) -> SafeString:
    return evidence_link(ref, trail)


@register.filter
def clockword(clock: str) -> str:
    """How the time of a line was found, in words."""
    how, _, assumed = clock.partition(":")
    return words.CLOCKS.get(how, words.plain(how).lower()) + (f" ({assumed.strip()})" if assumed.strip() else "")


@register.filter
def cut_fingerprint(value: str) -> str:
    """`sha256:4f1c9a02...` as the eight digits that people compare."""
    return value.partition(":")[2][:8] or value[:8]


@register.simple_tag(takes_context=True)
def query(context: Mapping[str, Any], **changes: Any) -> str:
    """The query string of this page with some keys changed; None or an empty value drops the key."""
    params = context["request"].GET.copy()
    for key, value in changes.items():
        if value in (None, ""):
            params.pop(key, None)
        else:
            params[key] = str(value)
    encoded = params.urlencode()
    return f"?{encoded}" if encoded else "?"
