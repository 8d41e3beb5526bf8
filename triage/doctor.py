"""What is wrong with an installation, and how to mend it. Every look is taken by itself: what fails is an answer too.

Nothing here needs the database to be there, nor changes anything but one small file that is written and removed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

import engine
from engine.ruleset import RulesetError, load_ruleset
from triage.health import broker_client, last_beat, workers
from triage.models import Attempt, Channel, Delivery, DeliveryState, Diagnosis, Discovery
from triage.models.attempt import UNFINISHED
from triage.services.checking import check_cluster
from triage.services.masking import mask_text
from triage.services.sources import configuration

OK, DOUBTFUL, BAD = "ok", "doubtful", "bad"
OLDEST_POSTGRES = 150_000
CLOCK_DOUBTFUL, CLOCK_BAD = 2.0, 30.0
"""Seconds between the clocks of this machine and a server. Leases and schedules use the database's."""
ROOM_DOUBTFUL, ROOM_BAD = 0.10, 0.02
LEAST_ROOM = 1 << 30
LONG_WAIT = timedelta(hours=1)


class Said(msgspec.Struct, frozen=True):
    """One look: what was looked at, how it is, and what to do when that is not good."""

    part: str
    state: str
    words: str
    mend: str = ""


def look(*, ask_sources: bool = False) -> Iterator[Said]:
    """All looks, one after the other, as they are taken. What a server that is away keeps from being looked at is said
    in one line, so that what is wrong stands out.
    """
    checks = [*_CHECKS, ("sources", _ask_sources)] if ask_sources else _CHECKS
    known: set[str] = set()
    hidden: list[str] = []
    for part, check in checks:
        for said in _taken(part, check, known, hidden):
            if said.state == BAD:
                known.add(said.part)
            yield said
    if hidden:
        names = ", ".join(dict.fromkeys(hidden))
        yield Said("the rest", DOUBTFUL, f"not looked at: {names}", "mend what is said above first, then ask again")


def _taken(part: str, check: Callable[[], Iterable[Said]], known: Container[str], hidden: list[str]) -> Iterator[Said]:
    """`known`: what is known to be bad; parts that could not be looked at because of it are added to `hidden`."""
    try:
        yield from check()
    except (DatabaseError, redis.RedisError) as error:
        causes = ("broker",) if isinstance(error, redis.RedisError) else ("database", "migrations")
        if any(cause in known for cause in causes):
            hidden.append(part)
        else:
            yield Said(part, BAD, f"could not be looked at: {_line(error)}", "mend database and broker first")
    except Exception as error:  # a look that fails is no reason not to take the others
        yield Said(part, BAD, f"could not be looked at: {type(error).__name__}: {_line(error)}", "tell the maintainers")


def _line(error: BaseException) -> str:
    return mask_text(" ".join(str(error).split()))[:300]


# --- settings ---------------------------------------------------------------------------------------------------------


def _settings() -> Iterator[Said]:
    if settings.DEBUG:
        yield Said("settings", BAD, "DEBUG is on: errors show settings to whoever asks", "unset DEBUG")
    key = settings.SECRET_KEY
    if not os.environ.get("SECRET_KEY"):
        yield Said(
            "secret key", DOUBTFUL, f"made on first use, in {settings.STATE_DIR}",
            "with more than one machine set SECRET_KEY, the same for all: else sessions and share links of one are "
            "nothing to the others",
        )  # fmt: skip
    elif len(key) < 50 or len(set(key)) < 5:
        yield Said(
            "secret key", BAD, f"SECRET_KEY has only {len(key)} characters", "SECRET_KEY=$(openssl rand -hex 32)"
        )
    else:
        yield Said("secret key", OK, "set, and long enough")
    yield from _hosts()


def _hosts() -> Iterator[Said]:
    hosts = settings.ALLOWED_HOSTS
    url = urlsplit(settings.FAULTLINE_URL)
    if "*" in hosts:
        yield Said("allowed hosts", BAD, "any: links in messages can be forged", "ALLOWED_HOSTS=the names in use")
    elif url.hostname and not _allowed(url.hostname, hosts):
        yield Said(
            "allowed hosts", BAD, f"{url.hostname} of FAULTLINE_URL is not among {', '.join(hosts)}",
            f"ALLOWED_HOSTS={','.join([*hosts, url.hostname])}",
        )  # fmt: skip
    elif not url.hostname:
        yield Said(
            "allowed hosts", DOUBTFUL, f"{', '.join(hosts)}; FAULTLINE_URL is not set",
            "FAULTLINE_URL=https://the.name: messages then link to their pages, and this is compared",
        )  # fmt: skip
    else:
        yield Said("allowed hosts", OK, ", ".join(hosts))
    if url.scheme == "https" and not settings.HTTPS:
        yield Said(
            "https", BAD, "FAULTLINE_URL is https, and cookies may travel without it",
            "FAULTLINE_HTTPS=1, and behind a proxy FAULTLINE_BEHIND_PROXY=1",
        )  # fmt: skip
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        yield Said("https", DOUBTFUL, "passwords and logs travel in the clear", "put a proxy with TLS before it")


def _allowed(name: str, hosts: Iterable[str]) -> bool:
    return any(name == host or (host.startswith(".") and f".{name}".endswith(host)) for host in hosts)


# --- servers ----------------------------------------------------------------------------------------------------------


def _database() -> Iterator[Said]:
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        words = _line(error)
        yield Said("database", BAD, f"does not answer: {words}", _mend_database(words))
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
            "current_setting('server_encoding'), pg_is_in_recovery(), pg_database_size(current_database())"
        )
        number, version, encoding, standby, size = cursor.fetchone()
    if number < OLDEST_POSTGRES:
        yield Said("database", BAD, f"PostgreSQL {version} is too old", "upgrade to PostgreSQL 15 or later")
    elif encoding != "UTF8":
        yield Said("database", BAD, f"is encoded as {encoding}", "make it again with ENCODING 'UTF8'")
    elif standby:
        yield Said("database", BAD, "is a standby, and takes no changes", "point DATABASE_URL at the primary")
    else:
        yield Said("database", OK, f"PostgreSQL {version}, {size / 1e9:.2f} GB")
    yield from _migrations()


_REFUSED = (
    (
        "password authentication failed",
        "the password in DATABASE_URL is not that user's: mend it there (special characters as %XX), or ALTER ROLE ... "
        "PASSWORD on the server",
    ),
    ("no password supplied", "DATABASE_URL has no password: postgresql://user:password@host/name"),
    ("no pg_hba.conf entry", "let this machine and user in: a line in the server's pg_hba.conf, then reload it"),
    ("role .* does not exist", "CREATE ROLE on the server, or name another user in DATABASE_URL"),
    ("database .* does not exist", "createdb on the server, or name another database in DATABASE_URL; then migrate"),
    ("too many clients|remaining connection slots", "raise max_connections of the server, or run fewer processes"),
)
"""What a server says that refuses a connection, and what mends it."""


def _mend_database(words: str) -> str:
    for said, mend in _REFUSED:
        if re.search(said, words):
            return mend
    return "does PostgreSQL run, may this machine reach it, and is DATABASE_URL right?"


def _migrations() -> Iterator[Said]:
    executor = MigrationExecutor(connection)
    wanted = executor.migration_plan(executor.loader.graph.leaf_nodes())
    newer = sorted(set(executor.loader.applied_migrations) - set(executor.loader.disk_migrations))
    newer = [name for name in newer if name[0] == "triage"]
    if wanted:
        names = ", ".join(f"{step.app_label}.{step.name}" for step, _ in wanted[:3])
        yield Said("migrations", BAD, f"{len(wanted)} are missing: {names}", "python manage.py migrate")
    elif newer:
        yield Said(
            "migrations", BAD, f"the database is newer than this code: {newer[-1][1]}",
            "install the version that migrated it, on every machine",
        )  # fmt: skip
    else:
        yield Said("migrations", OK, "all are applied")


def _broker() -> Iterator[Said]:
    try:
        with broker_client() as client:
            facts = client.info()
            policy = client.config_get("maxmemory-policy").get("maxmemory-policy", "")
            seconds, micros = client.time()
    except redis.RedisError as error:
        yield Said(
            "broker", BAD, f"does not answer: {_line(error)}",
            "does Redis or Valkey run, may this machine reach it, and is REDIS_URL right?",
        )  # fmt: skip
        return
    version = facts.get("valkey_version") or facts.get("redis_version")
    if facts.get("maxmemory") and policy != "noeviction":
        yield Said(
            "broker", BAD, f"{version} forgets what waits when memory is short ({policy})",
            "maxmemory-policy noeviction",
        )  # fmt: skip
    else:
        yield Said("broker", OK, f"{version}, {facts.get('used_memory', 0) / 1e6:.0f} MB")
    yield _clock("clock of the broker", seconds + micros / 1e6 - time.time())


def _clocks() -> Iterator[Said]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
        (there,) = cursor.fetchone()
    yield _clock("clock", float(there) - time.time())


def _clock(part: str, ahead: float) -> Said:
    words = f"{abs(ahead):.1f} s {'before' if ahead > 0 else 'behind'} this machine's"
    state = OK if abs(ahead) < CLOCK_DOUBTFUL else DOUBTFUL if abs(ahead) < CLOCK_BAD else BAD
    return Said(part, state, words, "" if state == OK else "run chrony or systemd-timesyncd on both machines")


# --- processes --------------------------------------------------------------------------------------------------------


def _workers() -> Iterator[Said]:
    alive = workers()
    if not alive:
        yield Said(
            "workers", BAD, "none has said for 15 s that it lives",
            "celery -A triage.celery worker; if it runs: does it have the same REDIS_URL? see its log",
        )  # fmt: skip
        return
    other = sorted({version for version in alive.values() if version != engine.__version__})
    if other:
        yield Said(
            "workers", DOUBTFUL, f"{len(alive)}, of which some run engine {', '.join(other)} and not "
            f"{engine.__version__}", "finish the upgrade: install the same version everywhere and restart",
        )  # fmt: skip
    else:
        yield Said("workers", OK, f"{len(alive)} with engine {engine.__version__}: {', '.join(sorted(alive)[:5])}")


def _beat() -> Iterator[Said]:
    at = last_beat()
    every = settings.FAULTLINE_BEAT_SECONDS["sweep"]
    if at is None or time.time() - at > 20 * every + 60:
        since = "never" if at is None else f"last at {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
        yield Said(
            "beat", BAD, f"no sweep was done as it should be each {every} s: {since}",
            "celery -A triage.celery beat, exactly one; a worker must run too, for it does what beat asks for",
        )  # fmt: skip
    else:
        yield Said("beat", OK, f"the last sweep was {max(0, time.time() - at):.0f} s ago")


def _queue() -> Iterator[Said]:
    waiting = Attempt.objects.filter(triage_state__in=UNFINISHED, triage_requested_at__isnull=False)
    count = waiting.count()
    oldest = waiting.order_by("triage_requested_at").values_list("triage_requested_at", flat=True).first()
    age = timezone.now() - oldest if oldest else timedelta()
    words = f"{count} attempts wait, the oldest for {age.total_seconds():.0f} s" if count else "nothing waits"
    if age > LONG_WAIT:
        yield Said("queue", DOUBTFUL, words, "start more workers; what fails says why in the worker's log")
    else:
        yield Said("queue", OK, words)
    with broker_client() as client:
        length = int(client.llen(settings.CELERY_TASK_DEFAULT_QUEUE))
    if length > 10 * count + 1000:
        yield Said(
            "queue",
            DOUBTFUL,
            f"{length} messages for {count} attempts",
            "old messages are harmless, and are worked off",
        )


# --- folders ----------------------------------------------------------------------------------------------------------


def _folders() -> Iterator[Said]:
    data = settings.FAULTLINE_DATA_DIR
    for name in ("blobs", "spool", "observed"):
        yield from _folder(data / name)
    yield from _room("room for streams", data, f"more room, or `streams` in [retention] ({data})")
    temporary = Path(settings.FILE_UPLOAD_TEMP_DIR)
    yield from _room("room for work", temporary, f"streams pass through {temporary}: give it more, or set TMPDIR")


def _folder(place: Path) -> Iterator[Said]:
    draft = place / f".doctor-{os.getpid()}"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with draft.open("wb") as out:
            out.write(b"can be written")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        yield Said("folders", BAD, f"{place}: {error.strerror}", _mend_folder(error.errno, place))
        return
    finally:
        with suppress(OSError):
            draft.unlink()
    mode = place.stat().st_mode & 0o077
    if mode:
        yield Said("folders", DOUBTFUL, f"{place} can be looked into by others ({mode:03o})", f"chmod 700 {place}")
    else:
        yield Said("folders", OK, f"{place} can be written")


def _mend_folder(number: int | None, place: Path) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"make room there, or have `streams` in [retention] and run manage.py prune; then all goes on: {place}"
    if number == errno.EROFS:
        return "mount it writable; a disk that became read-only by itself has errors: see dmesg"
    if number in (errno.ENOENT, errno.ENOTDIR):
        return f"FAULTLINE_DATA_DIR must name a folder that is there or can be made: {settings.FAULTLINE_DATA_DIR}"
    return f"chown it to the user that web server and workers run as, and mount it writable for both: {place}"


def _room(part: str, place: Path, mend: str) -> Iterator[Said]:
    while not place.exists():
        place = place.parent
    usage, facts = shutil.disk_usage(place), os.statvfs(place)
    share = usage.free / usage.total if usage.total else 0.0
    inodes = facts.f_favail / facts.f_files if facts.f_files else 1.0
    words = (
        f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.1f}" if usage.total else f"{place} has no room at all"
    )
    if inodes < ROOM_BAD:
        yield Said(part, BAD, f"{words}, but almost no inodes", mend)
    elif usage.free < LEAST_ROOM or share < ROOM_BAD:
        yield Said(part, BAD, words, mend)
    else:
        yield Said(part, OK if share > ROOM_DOUBTFUL else DOUBTFUL, words, "" if share > ROOM_DOUBTFUL else mend)


# --- what it works with -----------------------------------------------------------------------------------------------


def _rules() -> Iterator[Said]:
    try:
        rules = load_ruleset(settings.FAULTLINE_RULES)
    except RulesetError as error:
        yield Said("rules", BAD, _line(error), "python -m engine rules check, then mend the pack it names")
        return
    words = f"{len(rules.specs)} rules, {rules.fingerprint[:19]}"
    recent = Diagnosis.objects.filter(created_at__gt=timezone.now() - timedelta(hours=1)).order_by("-created_at")
    last = recent.values_list("ruleset", "engine_version").first()
    if last is not None and last != (rules.fingerprint, engine.__version__):
        yield Said(
            "rules", DOUBTFUL, f"{words}; the newest diagnosis was made with engine {last[1]}, {last[0][:19]}",
            "restart the workers: they keep the rules that they began with; FAULTLINE_RULES must be the same for all",
        )  # fmt: skip
    else:
        yield Said("rules", OK, words)


def _configuration() -> Iterator[Said]:
    found = configuration()
    for error in found.errors:
        yield Said("configuration", BAD, error, "mend it in that place; the other sources are used meanwhile")
    if not found.clusters and not found.errors:
        yield Said(
            "configuration", DOUBTFUL, "no cluster is set up: attempts come by upload and API alone",
            "faultline.toml, or the clusters' pages: docs/operators.md",
        )  # fmt: skip
    elif found.clusters:
        sources = sum(len(cluster.sources) for cluster in found.clusters.values())
        yield Said("configuration", OK, f"{len(found.clusters)} clusters with {sources} sources, {found.path}")
    for row in Discovery.objects.exclude(last_error="").order_by("connector"):
        yield Said(
            "sources", BAD, f"{row.connector}: {row.last_error}",
            f"python manage.py cluster check {row.connector.partition('/')[0]}",
        )  # fmt: skip


def _channels() -> Iterator[Said]:
    since = timezone.now() - timedelta(days=1)
    for channel in Channel.objects.filter(enabled=True).order_by("name"):
        mine = Delivery.objects.filter(channel=channel, created_at__gt=since)
        failed = mine.filter(state=DeliveryState.FAILED).order_by("-pk").first()
        if failed is not None and not mine.filter(state=DeliveryState.SENT, pk__gt=failed.pk).exists():
            yield Said("channels", BAD, f"{channel.name}: {failed.trouble}", "mend the channel, and send again there")
        else:
            yield Said("channels", OK, f"{channel.name} works, or had nothing to say since yesterday")


def _ask_sources() -> Iterator[Said]:
    for name in configuration().clusters:
        for answer in check_cluster(name):
            words = f"{name}/{answer.source}: {answer.report.note or 'answers'} ({answer.report.duration_s:.1f} s)"
            mend = "" if answer.works else f"docs/connectors/{answer.kind}.md; python manage.py cluster check {name}"
            yield Said("sources", OK if answer.works else BAD, words, mend)


_CHECKS: tuple[tuple[str, Callable[[], Iterable[Said]]], ...] = (
    ("settings", _settings),
    ("database", _database),
    ("clock", _clocks),
    ("broker", _broker),
    ("workers", _workers),
    ("beat", _beat),
    ("queue", _queue),
    ("folders", _folders),
    ("rules", _rules),
    ("configuration", _configuration),
    ("channels", _channels),
)
