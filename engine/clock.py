"""When a line was written: stamps to UTC, and what they leave open: year, zone, date, the moment of boot.

`StreamClock` decides once per stream what its stamps leave open, by the attempt's window and by the stream's own hints.
Nothing here asks for the current time.
"""

from __future__ import annotations

from calendar import timegm
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from time import gmtime
from typing import NamedTuple

from engine.stamps import AUDIT, LAST_YEAR, NETWORK_MANAGER, Stamp, find_stamp, parse_time, read_stamp
from engine.uptime import Boot, boot_by_samples

__all__ = ["LAST_YEAR", "Resolved", "Stamp", "StreamClock", "find_stamp", "parse_time", "read_stamp", "zone_shift"]


class Resolved(NamedTuple):
    at: float | None
    clock: str


_DAY_S = 86_400.0
WITH_THE_JOB = 300.0
"""Seconds between the job's start or end and the first or last stamp of its log."""
SAME_MOMENT = 30.0
"""Seconds between a daemon's own stamp in a line and the stamp that the system log gave the line."""
_ASSUMED = "zone assumed UTC"
_EXACT = ((AUDIT, "an audit line"), (NETWORK_MANAGER, "a line of NetworkManager"))
"""Lines that tell their own moment in epoch seconds."""
LEAST_SPAN = 8
"""Stamps of system logs from which on their zone can be told by what they span."""
CUT_EARLY, CUT_LATE = 5400.0, 3600.0
"""Seconds by which system logs are usually cut before a job's start and behind its end."""
ZONE_SHIFTS = tuple(
    hours * 3600.0
    for hours in sorted(
        [*range(-12, 15), -9.5, -3.5, 3.5, 4.5, 5.5, 5.75, 6.5, 9.5, 10.5], key=lambda h: (h % 1 != 0, abs(h), h)
    )
)
"""Seconds east of UTC of every zone that is in use, the likelier ones first."""


def zone_shift(seconds: float, tolerance: float) -> float | None:
    """The zone that is `seconds` east of UTC, within a tolerance; None when there is no such zone."""
    nearest = min(ZONE_SHIFTS, key=lambda shift: abs(shift - seconds))
    return nearest if abs(nearest - seconds) < tolerance else None


def zone_by_span(stamps: Iterable[Stamp], start: float | None, end: float | None) -> float | None:
    """Seconds east of UTC of system logs that name no zone, by the time that they span together; None when in doubt.

    Somebody cut them out around the job: from a while before its start to a while after its end. They tell a zone when
    a whole number of hours brings both ends to where such a cut would be, and none of the two is there without.
    """
    if start is None or end is None:
        return None
    clock = StreamClock(start, end, covers_job=False)
    local = [s for s in stamps if s.offset is None and s.kind in ("full", "no_year")]
    times = [clock.resolve(stamp).at or 0.0 for stamp in local]
    if len(times) < LEAST_SPAN:
        return None
    first, last = min(times), max(times)

    def is_cut(shift: float) -> tuple[bool, bool]:
        early, late = start - (first - shift), (last - shift) - end
        return -WITH_THE_JOB <= early <= CUT_EARLY, -WITH_THE_JOB <= late <= CUT_LATE

    if any(is_cut(0.0)):
        return None
    fitting = [shift for shift in ZONE_SHIFTS if all(is_cut(shift))]
    centre = (first + last) / 2 - (start + end) / 2 - (CUT_LATE - CUT_EARLY) / 4
    return min(fitting, key=lambda shift: (shift % 3600 != 0, abs(shift - centre)), default=None)


class StreamClock:
    """Resolves the stamps of one stream against the attempt's window.

    What a stamp leaves open is decided for the whole stream: the zone is UTC unless only another one brings the
    stream into the window; the year is the one nearest to the window; uptimes need an anchor (`boot`).
    """

    def __init__(
        self,
        start: float | None,
        end: float | None,
        samples: Iterable[tuple[Stamp, str]] = (),
        *,
        covers_job: bool = True,
        local_shift: float = 0.0,
        boot: Boot | None = None,
        about: float | None = None,
    ) -> None:
        """`about`: a moment of the year where neither start nor end is known.

        `boot`: when the node booted, for a log in seconds since then whose own lines don't tell.

        `covers_job`: the stream begins and ends with the job, as a job's log does and a system log doesn't.

        `local_shift`: seconds east of UTC of the cluster's zone, where something else told it.
        """
        self.start = start if start is not None else end
        self.end = end if end is not None else start
        self._about = self.end if self.end is not None else about
        self.shift = 0.0
        kept = list(samples)
        self.boot = boot_by_samples(kept) or boot
        self._day_first = False
        self._year_note = (
            "year by the attempt's window"
            if self.end is not None
            else "year by other lines"
            if about is not None
            else "year unknown"
        )
        self._zone_note = _ASSUMED
        self._day_first = self._has_day_first([stamp for stamp, _ in kept if stamp.day_first is not None])
        told = self._zone_by_own_words(kept)
        if told is not None:
            self.shift, self._zone_note = told[0], f"zone UTC{told[0] / 3600:+g} by {told[1]}"
        else:
            self._choose_zone([stamp for stamp, _ in kept], covers_job, local_shift)

    def resolve(self, stamp: Stamp | None) -> Resolved:
        """UTC epoch seconds of a stamp, and in words how they were found."""
        if stamp is None:
            return Resolved(None, "unknown: no time stamp")
        if stamp.kind == "epoch":
            return Resolved(stamp.naive, "own: epoch")
        if stamp.kind == "uptime":
            if self.boot is None:
                return Resolved(None, "unknown: uptime without an anchor")
            return Resolved(self.boot.at + stamp.naive, f"own: uptime, anchored by {self.boot.by}")
        if stamp.kind == "no_date":
            return self._nearest_day(stamp)
        naive = self._written(stamp)
        notes = []
        if stamp.kind == "no_year":
            naive = self._with_year(naive)
            notes.append(self._year_note)
        if stamp.offset is not None:
            return Resolved(naive - stamp.offset, "own" + (": " + ", ".join(notes) if notes else ""))
        notes.append(self._zone_note)
        return Resolved(naive - self.shift, "own: " + ", ".join(notes))

    def _written(self, stamp: Stamp) -> float:
        return stamp.day_first if self._day_first and stamp.day_first is not None else stamp.naive

    def _has_day_first(self, stamps: list[Stamp]) -> bool:
        """Does the stream write the day before the month? It does where only that is near the job, in any zone."""
        if self.start is None or self.end is None:
            return False
        low, high = self.start - _DAY_S, self.end + _DAY_S

        def far(naive: float, stamp: Stamp) -> bool:
            at = self._with_year(naive) if stamp.kind == "no_year" else naive
            return not low <= at <= high

        month_first = sum(far(stamp.naive, stamp) for stamp in stamps)
        return sum(far(stamp.day_first or 0.0, stamp) for stamp in stamps) < month_first

    def _with_year(self, naive: float) -> float:
        if self._about is None:
            return naive
        local = self._about + self.shift
        written, fraction = gmtime(naive), naive % 1.0
        around = gmtime(local).tm_year
        choices = [timegm((year, *written[1:6])) + fraction for year in (around - 1, around, around + 1)]
        return min(choices, key=lambda at: abs(at - local))

    def _nearest_day(self, stamp: Stamp) -> Resolved:
        if self.start is None or self.end is None:
            return Resolved(None, "unknown: time of day without a date")
        local_end = self.end + self.shift
        day = local_end // _DAY_S * _DAY_S
        choices = [day + k * _DAY_S + stamp.naive - self.shift for k in (-1, 0, 1)]
        fitting = [at for at in choices if self.start - 60 <= at <= self.end + 60]
        if self.end - self.start > _DAY_S or len(fitting) != 1:
            at = min(choices, key=lambda c: abs(c - (self.end or 0)))
            return Resolved(at, "own: date by the end of the attempt")
        return Resolved(fitting[0], f"own: date by the attempt's window, {self._zone_note}")

    def _choose_zone(self, stamps: list[Stamp], covers_job: bool, local_shift: float) -> None:
        """The zone that brings a job's log into the attempt's window: it begins and ends with the job.

        A system log goes on for hours on both sides, so there the cluster's zone is believed.
        """
        local = [s for s in stamps if s.offset is None and s.kind in ("full", "no_year")]
        dated = bool(local)
        if not dated and covers_job and self.end is not None and self.end - (self.start or 0.0) <= _DAY_S / 2:
            # Times of day alone: any of them is within a long attempt in some zone, so that only shorter ones tell.
            local = [s for s in stamps if s.kind == "no_date"]
        if not local or self.start is None or self.end is None:
            self.shift = local_shift
            self._zone_note = f"zone UTC{local_shift / 3600:+g} of the cluster" if local_shift else self._zone_note
            return
        slack = 300.0 if covers_job else 7200.0
        low, high = self.start - slack, self.end + slack

        def outside(shift: float) -> int:
            self.shift = shift
            return sum(not low <= (self.resolve(s).at or 0.0) <= high for s in local)

        def apart(shift: float) -> tuple[int, bool, float]:
            """Stamps outside the window; whether the log begins or ends with the job, as it should; by how much it goes
            beyond the job.
            """
            count = outside(shift)
            times = [self.resolve(s).at or 0.0 for s in local]
            before, after = low + slack - min(times), max(times) - (high - slack)
            return count, min(abs(before), abs(after)) > WITH_THE_JOB, max(before, after, 0.0)

        if covers_job:
            best = min((0.0, local_shift) if dated else (local_shift, 0.0), key=outside)
            cost = outside(best)
            if cost > 0.1 * len(local):
                found = min(ZONE_SHIFTS, key=apart)
                best = found if outside(found) < cost * (0.5 if dated else 0.1) else best
            elif cost and dated:
                # A job's log cannot go on after the job: one stamp beyond the end is enough if a zone accounts for it.
                found = min((shift for shift in ZONE_SHIFTS if not shift % 3600), key=outside)
                best = found if outside(found) == 0 else best
        else:
            best = local_shift if local_shift and outside(local_shift) < len(local) else 0.0
        self.shift = best
        if best:
            self._zone_note = f"zone UTC{best / 3600:+g} by the attempt's window"

    @property
    def told_shift(self) -> float | None:
        """The zone of the stream by its own evidence; None where it is only assumed."""
        return None if self._zone_note == _ASSUMED else self.shift

    def _zone_by_own_words(self, samples: list[tuple[Stamp, str]]) -> tuple[float, str] | None:
        """Seconds east of UTC, and by what, of a stream whose lines tell a time in UTC beside the stream's own stamp.

        The audit's and NetworkManager's epochs are that line's own moment, so one is enough where no other contradicts
        it. A daemon's stamp with a zone may be about something else, so that several must agree.
        """
        exact: Counter[tuple[float | None, str]] = Counter()
        told: Counter[float] = Counter()
        for (stamp, text), (next_stamp, next_text) in pairwise([*samples, (Stamp("none", 0.0), "")]):
            if stamp.offset is not None or stamp.kind not in ("full", "no_year"):
                continue
            naive = self._with_year(self._written(stamp)) if stamp.kind == "no_year" else self._written(stamp)
            for regex, name in _EXACT:
                epoch = regex.search(text)
                exact.update([(zone_shift(naive - float(epoch[1]), SAME_MOMENT), name)] if epoch else [])
            # The stamps of one line stand one after the other, the outermost first.
            inner = next_stamp if next_text == text and next_stamp.kind == "full" else find_stamp(text)
            if inner is not None and inner.offset is not None:
                shift = zone_shift(naive - (inner.naive - inner.offset), SAME_MOMENT)
                told.update([shift] if shift is not None else [])
        for (shift, name), count in exact.most_common():
            # Epochs that are now of this zone and now of that, or of none, are not their lines' moments.
            if shift is not None and count >= 0.8 * sum(n for (_, by), n in exact.items() if by == name):
                return shift, name
        best = min(told, key=lambda shift: (-told[shift], shift), default=0.0)
        agreed = told[best] >= 2 and told[best] >= 0.8 * told.total()
        return (best, "what its daemons write in UTC") if agreed else None
