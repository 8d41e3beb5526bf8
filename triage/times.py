"""Times and durations as people read them. Everything is UTC; the machine's form stands in `<time datetime>`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse(value: datetime | str | float | None) -> datetime | None:
    """A database time, an RFC 3339 string or epoch seconds as an aware UTC datetime. None when it is none."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, (int, float)):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def machine(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if moment.microsecond else "%Y-%m-%dT%H:%M:%SZ")


def clock(moment: datetime, millis: bool = False) -> str:
    """`04:11:57`, or `04:11:57.433`."""
    return moment.strftime("%H:%M:%S") + (f".{moment.microsecond // 1000:03d}" if millis else "")


def day(moment: datetime, now: datetime | None = None) -> str:
    """`3 Nov`, with the year when it is not this one."""
    now = now or datetime.now(UTC)
    return f"{moment.day} {MONTHS[moment.month - 1]}" + ("" if moment.year == now.year else f" {moment.year}")


def full(moment: datetime) -> str:
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year} {clock(moment, bool(moment.microsecond))} UTC"


def duration(seconds: float | timedelta | None) -> str:
    """Two units at most: `0.4 s`, `48 s`, `10 m 34 s`, `2 h 22 m`, `3 d 4 h`."""
    if seconds is None:
        return ""
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    total = abs(total)
    if total < 10 and total != int(total):
        return f"{total:.1f} s"
    whole = int(total + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} m" if whole % 3600 // 60 else "")
    return f"{whole // 86400} d" + (f" {whole % 86400 // 3600} h" if whole % 86400 // 3600 else "")


def age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in the coarsest honest words: `just now`, `12 m`, `2 h 20 m`, `16 h`, `3 d`, `5 wk`."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < 60:
        return "just now"
    if seconds < 12 * 3600:
        return duration(seconds // 60 * 60)
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h"
    if seconds < 60 * 86400:
        return f"{int(seconds // 86400)} d"
    return f"{int(seconds // 604800)} wk"


def size(number: int) -> str:
    """Bytes in decimal units, as disks count: `16.6 KB`, `1.2 GB`."""
    value = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
