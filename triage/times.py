"""Times and durations as people read them, in the zone of the request; `<time datetime>` holds the UTC form."""

from __future__ import annotations

from contextvars import ContextVar, Token
from datetime import UTC, datetime, timedelta, tzinfo

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ZONE: ContextVar[tzinfo] = ContextVar("faultline_zone", default=UTC)


def use_zone(zone: tzinfo) -> Token[tzinfo]:
    """From here on, in this request, times are told in this zone."""
    return _ZONE.set(zone)


def end_zone(token: Token[tzinfo]) -> None:
    _ZONE.reset(token)


def zone() -> tzinfo:
    return _ZONE.get()


def told(moment: datetime) -> datetime:
    """The moment in the zone in which this request tells times."""
    return moment.astimezone(_ZONE.get())


def zone_word(moment: datetime) -> str:
    """What follows a time: `UTC`, `CET`, `UTC-03:00`."""
    local = told(moment)
    name, offset = local.tzname() or "", f"{local:%z}"
    return name if name.isalpha() else f"UTC{offset[:3]}:{offset[3:5]}"


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
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def clock(moment: datetime, millis: bool = False) -> str:
    """`04:11:57`, or `04:11:57.433`."""
    moment = told(moment)
    return moment.time().isoformat("milliseconds" if millis else "seconds")


def minute(moment: datetime) -> str:
    """`04:11`."""
    return told(moment).time().isoformat("minutes")


def day(moment: datetime, now: datetime | None = None, zone: tzinfo | None = None) -> str:
    """`3 Nov`, with the year when it is not this one."""
    zone = zone or _ZONE.get()
    moment, now = moment.astimezone(zone), (now or datetime.now(UTC)).astimezone(zone)
    return f"{moment.day} {MONTHS[moment.month - 1]}" + ("" if moment.year == now.year else f" {moment.year}")


def full(moment: datetime) -> str:
    local = told(moment)
    written = f"{local.day} {MONTHS[local.month - 1]} {local.year} {clock(moment, bool(moment.microsecond))}"
    return f"{written} {zone_word(moment)}"


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
