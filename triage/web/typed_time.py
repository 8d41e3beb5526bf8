"""A time that a person typed, as a moment: a whole time stamp, or a time of day inside the span of a log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6}))?)?")


def typed_moment(
    text: str, first: datetime | None, last: datetime | None, zone: tzinfo = UTC, near: datetime | None = None
) -> datetime | None:
    """`04:11`, `04:11:57.4`, `2026-11-03 04:11:57` or RFC 3339; without an offset it is meant in `zone`.

    A time of day falls on the day inside `first` to `last`, else on the day that brings it nearest to `near`.
    """
    text = text.strip()
    match = _CLOCK.fullmatch(text)
    if match is None:
        return _whole(text, zone)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    clock = time(hour, minute, second, int((match[4] or "0").ljust(6, "0")))
    anchor = near or first or last
    if anchor is None:
        return None
    start, end = (first or anchor) - timedelta(seconds=1), (last or anchor) + timedelta(seconds=1)
    days = {
        (moment.astimezone(zone) + timedelta(days=by)).date() for moment in (start, end, anchor) for by in (-1, 0, 1)
    }
    moments = sorted(datetime.combine(day, clock, zone).astimezone(UTC) for day in days)
    inside = [moment for moment in moments if start <= moment <= end]
    return min(inside or moments, key=lambda moment: abs(moment - anchor))


def _whole(text: str, zone: tzinfo) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace(" UTC", "Z").replace("z", "Z"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
