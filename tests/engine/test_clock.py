"""Time stamps of every style, and what the attempt and the stream tell about what they leave open."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from engine import neighbours, stamps
from engine.clock import Stamp, StreamClock, parse_time, read_stamp, zone_by_span
from engine.model import rfc3339
from tests.engine.evidence import attempt, case

AT = datetime(2026, 11, 3, 4, 12, 9, tzinfo=UTC).timestamp()
START, END = AT - 7200, AT + 600


def read(text: str) -> tuple[Stamp, str]:
    found = read_stamp(text)
    assert found is not None, text
    return found[0], text[found[1] :]


def resolved(text: str, *others: str, start: float = START, end: float = END, **kwargs: bool | float) -> str | None:
    """The time of a line of a stream with these lines, as RFC 3339."""
    samples = [(read(line)[0], read(line)[1]) for line in (text, *others)]
    clock = StreamClock(start, end, samples, **kwargs)  # type: ignore[arg-type]
    return rfc3339(clock.resolve(samples[0][0]).at)


SAME_MOMENT = [
    "2026-11-03T04:12:09Z x",
    "2026-11-03T04:12:09+00:00 x",
    "2026-11-03T05:12:09+01:00 x",
    "2026-11-03T09:42:09+0530 x",
    "2026-11-03 04:12:09 UTC x",
    "2026-11-03 05:12:09 CET x",
    "2026-11-02 20:12:09 PST x",
    "2026-11-03 04:12:09 x",
    "2026-11-03 04:12:09,000 x",
    "2026/11/03 04:12:09 x",
    "[2026-11-03 04:12:09] x",
    "[2026-11-03T04:12:09.000] x",
    "INFO 2026-11-03 04:12:09 x",
    "11/03/2026 04:12:09 AM x",
    "11/03 04:12:09 x",
    "INFO 11-03 04:12:09 x",
    "03/11/2026 04:12:09 x",
    "03/11 04:12:09 x",
    "03-11-2026 04:12:09,000 x",
    "11-03-2026 04:12:09 x",
    "[03-11 04:12:09] x",
    "20261103 04:12:09 x",
    "[20261103-04:12:09] x",
    "20261103T041209Z x",
    "Tue 2026-11-03 04:12:09 UTC x",
    "2026 Nov  3 04:12:09 x",
    "Nov  3 2026 04:12:09 x",
    "Nov 03, 2026 04:12:09 x",
    "Nov 3, 2026 @ 04:12:09.000 x",
    "[Nov 03 2026 04:12:09] [ERROR] [tid 841] x",
    "[Nov  3 04:12:09.000000] x",
    "[Nov 03 04:12:09.000000 2211 0x7f1] x",
    "03/Nov/2026:04:12:09 +0000 x",
    "[03/Nov/2026 05:12:09 +0100] x",
    "03-Nov-2026 04:12:09 x",
    "03.11.2026 04:12:09 x",
    "E20261103 04:12:09.000000 12345 file.cc:12] x",
    "[NeMo W 2026-11-03 04:12:09 nemo_logging:405] x",
    "[I 2026-11-03 04:12:09,000] x",
    "[WARNING|2026-11-03 04:12:09] x",
    "[1793679129] x",
    "[1793679129.000] x",
    "Nov  3 04:12:09 x",
    "<3>Nov  3 04:12:09 x",
    "[Tue Nov  3 04:12:09 2026] x",
    "Tue Nov  3 04:12:09 UTC 2026 x",
    "Tue Nov  3 05:12:09 CET 2026 x",
    "E1103 04:12:09.000000 1234 x",
    "[E1103 04:12:09.000000 x",
    "E0000 00:00:1793679129.000000 1234 x",
    "1793679129 x",
    "1793679129.000 x",
    "1793679129000 x",
    "1793679129000000 x",
    "1793679129000000000 x",
    "2026-11-03,04:12:09 | INFO | x",
    "04:12:09 x",
    "[04:12:09] x",
    'time="2026-11-03T04:12:09Z" x',
]


@pytest.mark.parametrize("text", SAME_MOMENT)
def test_every_style_gives_the_same_moment(text: str) -> None:
    assert resolved(text) == "2026-11-03T04:12:09.000000Z"


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (1793679129, AT),
        (1793679129.5, AT + 0.5),
        ("1793679129123", AT + 0.123),
        ("1793679129123456", AT + 0.123456),
        ("2026-11-03T04:12:09Z", AT),
        (" 2026-11-03T04:12:09Z ", AT),
    ],
)
def test_structured_data_may_hold_epochs_and_texts(value: object, at: float) -> None:
    stamp = parse_time(value)
    assert stamp is not None
    assert stamp.naive == pytest.approx(at, abs=1e-5)


@pytest.mark.parametrize(
    "value",
    [None, True, "", "Unknown", "None", 0, -1, 17, 10**40, float("inf"), float("nan"), "9" * 400, [], {}, "N/A"],
)
def test_what_is_no_time_is_none(value: object) -> None:
    assert parse_time(value) is None


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01 00:00:00 x",
        "9999-12-31 23:59:59 -1200 x",
        "2026-13-03 04:12:09 x",
        "2026-11-32 04:12:09 x",
        "2026-11-03 25:12:09 x",
        "Nov 99 04:12:09 x",
        "99/99 04:12:09 x",
        "1.2.3.4 x",
        "12345 x",
        "step 100 loss 2.0",
        "[100] x",
        "2026 was a good year",
    ],
)
def test_numbers_that_are_no_time_are_left_alone(text: str) -> None:
    assert read_stamp(text) is None


def test_whether_day_or_month_comes_first_is_told_by_the_attempt() -> None:
    may_6 = datetime(2026, 5, 6, 10, tzinfo=UTC).timestamp()
    june_5 = datetime(2026, 6, 5, 10, tzinfo=UTC).timestamp()
    for text in ("06/05 10:30:00 x", "06/05/2026 10:30:00 x", "06-05-2026 10:30:00,120 x", "06-05 10:30:00 x"):
        assert (resolved(text, start=may_6, end=may_6 + 7200) or "")[:10] == "2026-05-06"
        assert (resolved(text, start=june_5, end=june_5 + 7200) or "")[:10] == "2026-06-05"


def test_a_number_that_is_no_month_is_the_day() -> None:
    may_25 = datetime(2026, 5, 25, 10, tzinfo=UTC).timestamp()
    for text in ("25/05 10:30:00 x", "05/25 10:30:00 x", "25-05-2026 10:30:00 x", "25/05/2026 10:30:00 x"):
        assert resolved(text, start=may_25, end=may_25 + 7200) == "2026-05-25T10:30:00.000000Z"


def test_a_log_that_begins_before_the_job_s_day_keeps_one_order_for_all_its_lines() -> None:
    start = datetime(2026, 3, 4, 22, tzinfo=UTC).timestamp()
    lines = ["04/03 23:50:00 x", "05/03 00:10:00 x", "05/03 01:10:00 x"]
    assert resolved(*lines, start=start, end=start + 4 * 3600) == "2026-03-04T23:50:00.000000Z"


def test_a_year_that_is_not_written_is_the_attempt_s() -> None:
    new_year = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    window = {"start": new_year - 3600, "end": new_year + 3600}
    assert resolved("Dec 31 23:59:00 x", **window) == "2026-12-31T23:59:00.000000Z"
    assert resolved("Jan  1 00:01:00 x", **window) == "2027-01-01T00:01:00.000000Z"
    assert resolved("Feb 29 00:01:00 x", start=1709164800 - 60, end=1709164800 + 7200) == "2024-02-29T00:01:00.000000Z"


def test_without_a_window_the_year_is_the_one_nearest_to_what_other_logs_date() -> None:
    stamp, _ = read("Dec 31 23:59:58 node-1 kernel: x")
    clock = StreamClock(None, None, [], about=datetime(2027, 1, 1, 0, 3, tzinfo=UTC).timestamp())
    at, how = clock.resolve(stamp)
    assert (rfc3339(at), how) == ("2026-12-31T23:59:58.000000Z", "own: year by other lines, zone assumed UTC")


def test_a_time_of_day_is_put_on_the_attempt_s_day() -> None:
    midnight = datetime(2026, 11, 4, tzinfo=UTC).timestamp()
    window = {"start": midnight - 3600, "end": midnight + 3600}
    assert resolved("23:59:00 x", **window) == "2026-11-03T23:59:00.000000Z"
    assert resolved("00:01:00 x", **window) == "2026-11-04T00:01:00.000000Z"


def test_a_job_s_log_in_local_time_is_brought_into_the_window() -> None:
    lines = [f"2026-11-03 {hour:02d}:05:00 x" for hour in (8, 9)]
    assert resolved(*lines) == "2026-11-03T03:05:00.000000Z"
    assert resolved("2026-11-03 04:12:09 x") == "2026-11-03T04:12:09.000000Z"


def test_a_job_s_log_of_times_of_day_alone_is_brought_into_the_window() -> None:
    job = {"start": AT - 7200, "end": AT}  # 02:12:09 to 04:12:09 UTC
    log = [f"{5 + minute // 60:02d}:{minute % 60:02d}:30 step {minute}" for minute in range(15, 132, 4)]
    assert resolved(*log, **job) == "2026-11-03T02:15:30.000000Z"
    # Before what a job writes can be outside by accident, UTC is believed; and in a long job's window every zone fits.
    few = [f"{2 + minute // 60:02d}:{minute % 60:02d}:30 step {minute}" for minute in range(15, 128, 4)]
    assert resolved(*few, "05:00:00 old", **job) == "2026-11-03T02:15:30.000000Z"
    assert resolved(*log, start=AT - 60_000, end=AT + 7200) == "2026-11-03T05:15:30.000000Z"


def test_a_system_log_believes_an_audit_line_more_than_the_window() -> None:
    lines = ["Nov  3 05:12:09 x", "Nov  3 05:12:10 audit[1]: audit(1793679130.100:5): x"]
    assert resolved(*lines, covers_job=False) == "2026-11-03T04:12:09.000000Z"


def test_audit_lines_that_contradict_each_other_tell_no_zone() -> None:
    lines = [
        "Nov  3 04:12:09 x",
        "Nov  3 04:12:10 kernel: audit: type=1131 audit(1793691730.100:5): x",
        "Nov  3 04:22:10 kernel: audit: type=1131 audit(1793675930.100:6): x",
        "Nov  3 04:32:10 kernel: audit: type=1131 audit(1793672200.100:7): x",
    ]
    assert resolved(*lines, covers_job=False) == "2026-11-03T04:12:09.000000Z"


def test_an_audit_line_is_that_line_s_moment_to_the_second() -> None:
    lines = ["Nov  3 04:12:09 x", "Nov  3 04:12:10 kernel: audit: type=1131 audit(1793691430.100:5): x"]
    assert resolved(*lines, covers_job=False) == "2026-11-03T04:12:09.000000Z"


@pytest.mark.parametrize(
    "others",
    [
        ["Nov  3 05:12:10 NetworkManager[81]: <info>  [1793679130.1004] dhcp4 (eno1): state changed"],
        [
            "Nov  3 05:11:10 telegraf[2604]: 2026-11-03T04:11:10Z W! [inputs.smart] Collection took longer",
            'Nov  3 05:12:04 dcgm-exporter[14]: time="2026-11-03T04:12:03Z" level=info msg="Pipeline starting"',
        ],
    ],
    ids=["NetworkManager", "two daemons"],
)
def test_a_system_log_believes_the_times_that_its_daemons_write_in_utc(others: list[str]) -> None:
    assert resolved("Nov  3 05:12:09 x", *others, covers_job=False) == "2026-11-03T04:12:09.000000Z"


@pytest.mark.parametrize(
    "others",
    [
        ['Nov  3 04:12:04 containerd[14]: time="2026-11-03T02:12:04Z" level=info msg="image created"'],
        [
            "Nov  3 04:10:00 certs[9]: not after 2026-11-03T01:10:00Z",
            "Nov  3 04:11:00 certs[9]: not after 2026-11-03T09:11:00Z",
        ],
    ],
    ids=["one alone", "at odds"],
)
def test_a_time_in_utc_that_is_about_something_else_moves_nothing(others: list[str]) -> None:
    assert resolved("Nov  3 04:12:09 x", *others, covers_job=False) == "2026-11-03T04:12:09.000000Z"


@pytest.mark.parametrize(
    ("text", "hour"), [("11/03 12:05:00 AM x", 0), ("11/03 12:05:00 PM x", 12), ("11/03 01:05:00 PM x", 13)]
)
def test_noon_and_midnight_of_a_twelve_hour_clock_are_told_apart(text: str, hour: int) -> None:
    assert datetime.fromtimestamp(read(text)[0].naive, UTC).hour == hour


def test_uptime_needs_an_anchor() -> None:
    assert resolved("[ 8123.456789] x") is None
    assert resolved("[ 8123.500000] x", "[ 8124.000000] audit: type=2000 audit(1793679129.500:1): x") == (
        "2026-11-03T04:12:09.000000Z"
    )
    said = "[    1.000000] rtc_cmos rtc_cmos: setting system clock to 2026-11-03T01:56:46 UTC (1793671006)"
    assert resolved("[ 8123.000000] x", said) == "2026-11-03T04:12:08.000000Z"


UPTIME = "[ 8123.000000] NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("files", "by"),
    [
        ({"syslog/n1.log": f"[    1.000000] PM: RTC time: 01:56:47, date: 2026-11-03\n{UPTIME}"}, "both times"),
        ({"syslog/n1.log": f"[    1.000000] RTC time:  1:56:47, date: 11/03/26\n{UPTIME}"}, "both times"),
        ({"syslog/n1.log": f"# dmesg of n1, booted 2026-11-03 01:56:46\n{UPTIME}"}, "header"),
        ({"syslog/n1.log": f"btime 1793671006\n{UPTIME}"}, "header"),
        (
            {
                "syslog/n1.dmesg": UPTIME,
                "syslog/n1.log": "2026-11-03T04:00:00+00:00 n1 kernel: [ 7394.000000] usb 1-1: new device\n",
            },
            "another log",
        ),
        (
            {"syslog/n1.log": UPTIME, "scheduler/scontrol-nodes.txt": "NodeName=n1 BootTime=2026-11-03T01:56:46\n"},
            "Slurm's BootTime",
        ),
        (
            {
                "syslog/n1.log": UPTIME,
                "metrics/boot.json": '{"data":{"result":[{"metric":{"__name__":"node_boot_time_seconds",'
                '"instance":"n1:9100"},"values":[[1793671200,"1793671006"]]}]}}',
            },
            "node_boot_time_seconds",
        ),
    ],
    ids=["RTC", "RTC of older kernels", "header", "btime", "another log", "scontrol", "metric"],
)
def test_uptime_is_anchored_by_whatever_tells_when_the_node_booted(files: dict[str, bytes | str], by: str) -> None:
    found = attempt(files, nodes=("n1", "n2"), ended_at="2026-11-03T04:30:00Z").diagnosed()
    lost = next(e for e in found.evidence if "Xid" in e.text)
    assert lost.at is not None and lost.at.startswith("2026-11-03T04:12:09")
    assert by in lost.clock
    assert found.root_cause and found.root_cause.nodes == ("n1",)


IN_UTC = (
    'Nov  2 20:51:00 {n} node_exporter[1890]: ts=2026-11-03T03:51:00.103Z caller=collector.go:169 level=error msg="x"\n'
    'Nov  2 20:58:00 {n} dcgm-exporter[2050]: time="2026-11-03T03:58:00Z" level=info msg="Collected 182 metrics"\n'
)
LOST = "Nov  2 21:12:09 n1 kernel: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("told_by", ["n1", "n2"], ids=["its own log", "another node's log"])
def test_a_node_s_local_zone_is_told_by_what_daemons_write_in_utc_whatever_the_scheduler_s_zone(told_by: str) -> None:
    logs = {"syslog/n1.log": "", "syslog/n2.log": "Nov  2 20:40:00 n2 systemd[1]: x\n"}
    logs[f"syslog/{told_by}.log"] += IN_UTC.format(n=told_by)
    logs["syslog/n1.log"] += LOST
    sacct = "JobID|State|Start|End\n4711|FAILED|2026-11-03T02:00:00|2026-11-03T04:30:00\n"
    found = attempt(
        {**logs, "scheduler/sacct.txt": sacct}, nodes=("n1", "n2"), ended_at="2026-11-03T04:30:00Z"
    ).diagnosed()
    assert found.root_cause and (found.root_cause.nodes, found.root_cause.at) == (
        ("n1",),
        "2026-11-03T04:12:09.000000Z",
    )


def test_system_logs_tell_their_zone_by_what_they_span_together() -> None:
    local = [f"Nov  3 {hour:02}:{minute:02}:00 x" for hour in range(7, 12) for minute in (5, 50)]
    stamps = [read(line)[0] for line in local]
    start, end = AT - 7200, AT + 7200  # 02:12 to 06:12
    assert zone_by_span(stamps, start, end) == 5 * 3600
    assert zone_by_span(stamps[:4], start, end) is None, "too few"
    inside = [read(line.replace("Nov  3 07", "Nov  3 02"))[0] for line in local[:2]]
    assert zone_by_span([*inside, *stamps], start, end) is None, "a log that begins with the job as it is"


def test_the_clock_says_how_it_was_found() -> None:
    clock = StreamClock(START, END, [])
    assert clock.resolve(None) == (None, "unknown: no time stamp")
    assert clock.resolve(Stamp("epoch", AT, 0)).clock == "own: epoch"
    assert "year by the attempt's window" in clock.resolve(read("Nov  3 04:12:09 x")[0]).clock
    assert "zone assumed UTC" in clock.resolve(read("2026-11-03 04:12:09 x")[0]).clock
    assert clock.resolve(Stamp("uptime", 5.0)).clock == "unknown: uptime without an anchor"


def test_without_a_window_nothing_is_invented() -> None:
    clock = StreamClock(None, None, [])
    assert clock.resolve(read("04:12:09 x")[0]).at is None
    assert clock.resolve(read("2026-11-03 04:12:09 x")[0]).at == AT


def test_a_line_without_a_time_takes_its_neighbour_s_and_says_so() -> None:
    log = "2026-11-03 02:50:00 step\nno time here: CUDA error: an illegal memory access was encountered\n"
    found = [e for e in attempt({"applog/train.log": log}).diagnosed().evidence if "illegal memory" in e.text]
    assert [(e.at, e.clock) for e in found] == [("2026-11-03T02:50:00.000000Z", "inherited: from line 1")]


def test_a_journal_export_gives_its_entries_their_times() -> None:
    at = int(datetime(2026, 11, 3, 2, 58, tzinfo=UTC).timestamp() * 1e6)
    export = "".join(
        f"__CURSOR=s=1;i={number}\n__REALTIME_TIMESTAMP={at + number}\n_HOSTNAME=node-02\n"
        f"SYSLOG_IDENTIFIER=kernel\nMESSAGE={text}\n\n"
        for number, text in enumerate(["hello", "NVRM: Xid (PCI:0000:61:00): 79, pid=1, GPU has fallen off the bus."])
    )
    found = attempt({"syslog/node-02.log": export, "applog/train.log": "x\n"}).diagnosed()
    assert (found.domain, found.sub_domain) == ("hardware", "gpu")
    assert found.root_cause is not None
    assert found.root_cause.nodes == ("node-02",)
    assert found.root_cause.at == "2026-11-03T02:58:00.000001Z"


@pytest.mark.parametrize("minutes", [20, -20])
def test_a_node_whose_clock_is_wrong_is_still_blamed_when_its_launch_line_gives_the_clock_away(minutes: int) -> None:
    evidence = case("hw-nvlink-xid149-node02")
    begin = evidence.start
    said = f"slurmd[2211]: launch task StepId={evidence.document['workload']['id']}.0 request from UID:1000"
    launch = f"{begin:%b} {begin.day:2d} {begin:%H:%M:%S} node-02 {said}"
    skewed = evidence.with_lines("syslog/node-02.log", launch).shifted("syslog/node-02.log", timedelta(minutes=minutes))
    found = skewed.diagnosed()
    assert (found.domain, found.sub_domain) == ("hardware", "nvlink")
    assert found.root_cause is not None
    assert found.root_cause.nodes == ("node-02",)


STAMPS = [
    *("2026-11-03 02:00:01,123", "2026/11/03 02:00:01.5", "[2026-11-03T02:00:01Z]", "(2026-11-03 02:00:01)"),
    *("INFO 2026-11-03 02:00:01", "[WARNING] 2026-11-03 02:00:01", "DEBUG:11-03 02:00:01.5", "ERROR 11/03 02:00:01"),
    *(
        "CRITICAL: 02:00:01",
        "FATAL: 11/03/26 02:00:01 PM",
        "<13>Nov  3 02:00:01",
        "Nov  3 02:00:01.5",
        "Dec 31 23:59:59",
    ),
    *("Tue Nov  3 02:00:01 2026", "[Sat Nov  7 02:00:01 UTC 2026]", "E0000 00:00:1793678401.25", "[I1103 02:00:01.5"),
    *("W1103 02:00:01.123456", "11-03 02:00:01", "11/03 02:00:01", "20261103-020001", "[20261103 02:00:01.5]"),
    *("[    0.000001]", "[12345.678901]", "1793678401.5", "1793678401123", "[02:00:01]", "02:00:01.25", "(02:00:01)"),
    *('time="2026-11-03T02:00:01Z"', "ts=2026-11-03 02:00:01"),
]


@pytest.mark.parametrize("written", STAMPS)
def test_a_style_is_found_by_its_first_character(written: str) -> None:
    """As it is when every style is tried in turn."""
    for text in (f"{written} rest", f"{written}: rest", f"{written}| rest", written):
        tried = (style.match(text) for style in stamps.STYLES)
        expected = next(((s, m.end()) for m in tried if m and (s := stamps._stamp(m.groupdict()))), None)
        assert stamps.read_stamp(text) == expected
    assert any(stamps.read_stamp(f"{written}{tail}") for tail in (" rest", ": rest", "| rest"))


@pytest.mark.parametrize("written", STAMPS)
def test_a_line_with_a_time_looks_like_one(written: str) -> None:
    """Lines that don't are not cleaned where only their time is asked for."""
    assert neighbours.may_tell_time(written.encode())


@pytest.mark.parametrize("style", stamps.STYLES, ids=range(len(stamps.STYLES)))
def test_no_stamp_of_any_style_is_passed_over(style: re.Pattern[str]) -> None:
    @settings(max_examples=20, deadline=None, database=None)
    @given(some.from_regex(style))
    def holds(text: str) -> None:
        found = style.search(text)
        assert found is not None and stamps.may_be_stamp(text[found.start() :])

    holds()


@pytest.mark.parametrize(
    "text", ["[INFO] trainer.loop: step 40", "[INFO] iteration      590/   20000", "Error while it ran", "x"]
)
def test_a_message_is_not_looked_through_for_every_style(text: str) -> None:
    assert not stamps.may_be_stamp(text)
