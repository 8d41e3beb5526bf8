"""Migrations run with the service up: nothing that the version before does fails on the new schema, or waits for long;
and one that is killed in the middle is simply started again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from importlib import import_module
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.models import Count
from psycopg import sql

from tests.triage import cast
from tests.triage.migration_rules import complaints
from triage.management.commands import migrate
from triage.models import Attempt, AttemptNode
from triage.services.attempts import record_attempt
from triage.services.integrity import verify

BASELINE = "0021_followed"
"""The last migration from before the rule; service and migrations could not be up at once then."""


def since_baseline() -> list[str]:
    names = {name for app, name in MigrationLoader(None).disk_migrations if app == "triage"}
    return sorted(name for name in names if name > BASELINE)


@pytest.mark.django_db(transaction=True)  # within one, indexes beside the work can't even be told as SQL
@pytest.mark.parametrize("name", since_baseline())
def test_a_migration_takes_nothing_from_the_version_before_and_holds_nobody_up(name: str) -> None:
    loader = MigrationLoader(connection, replace_migrations=False)
    migration = loader.graph.nodes["triage", name]
    allowed = getattr(migration, "allowed_because", "")
    assert allowed or complaints(loader.collect_sql([(migration, False)])) == []


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ('ALTER TABLE "triage_attempt" ADD COLUMN "rank" double precision NULL', True),
        ('ALTER TABLE "triage_attempt" ADD COLUMN "kind" varchar(16) DEFAULT \'a\' NOT NULL', True),
        ('ALTER TABLE "triage_attempt" ADD COLUMN "kind" varchar(16) NOT NULL', False),
        ('ALTER TABLE "triage_attempt" ALTER COLUMN "kind" DROP DEFAULT', False),
        ('ALTER TABLE "triage_attempt" ALTER COLUMN "kind" SET NOT NULL', False),
        ('ALTER TABLE "triage_attempt" ALTER COLUMN "kind" TYPE text USING "kind"::text', False),
        ('ALTER TABLE "triage_attempt" DROP COLUMN "kind" CASCADE', False),
        ('ALTER TABLE "triage_attempt" RENAME COLUMN "kind" TO "sort"', False),
        ('ALTER TABLE "triage_attempt" RENAME TO "triage_try"', False),
        ('DROP TABLE "triage_comment" CASCADE', False),
        ('CREATE INDEX "a" ON "triage_attempt" ("rank")', False),
        ('CREATE INDEX CONCURRENTLY "a" ON "triage_attempt" ("rank")', True),
        ('DROP INDEX IF EXISTS "a"', False),
        ('DROP INDEX CONCURRENTLY IF EXISTS "a"', True),
        ('ALTER TABLE "triage_attempt" ADD CONSTRAINT "c" CHECK ("rank" > 0)', False),
        ('ALTER TABLE "triage_attempt" ADD CONSTRAINT "c" CHECK ("rank" > 0) NOT VALID', True),
        ('ALTER TABLE "triage_attempt" VALIDATE CONSTRAINT "c"', True),
        ("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DROP TABLE x; END $$", True),
    ],
)
def test_the_rule_tells_what_holds_the_service_up(statement: str, allowed: bool) -> None:
    assert (complaints([statement]) == []) is allowed


def test_a_new_table_may_be_made_as_it_is_to_be() -> None:
    new = ['CREATE TABLE "triage_new" ("id" bigint PRIMARY KEY)', 'CREATE INDEX "a" ON "triage_new" ("id")']
    assert complaints(new) == []
    assert len(complaints([*new, 'CREATE INDEX "b" ON "triage_old" ("id")'])) == 1


# --- the models of each version before, as its migrations tell them, on the schema of today ---------------------------


def _versions() -> list[str]:
    return [BASELINE, *since_baseline()[:-1]]


@pytest.mark.django_db
@pytest.mark.parametrize("version", _versions())
def test_the_version_before_reads_and_writes_every_table_on_the_new_schema(version: str) -> None:
    apps = MigrationLoader(connection).project_state(("triage", version)).apps
    rows = Rows()
    for model in apps.get_app_config("triage").get_models():
        row = rows.make(model)
        if model._meta.db_table in APPEND_ONLY:
            continue
        assert model._base_manager.filter(pk=row.pk).values().get(), model
        row.save()
    for model in apps.get_app_config("triage").get_models():
        list(model._base_manager.order_by("pk")[:5])


APPEND_ONLY = {"triage_diagnosis", "triage_timelineevent", "triage_auditentry"}
"""Their rows are never edited; there are triggers for that."""


class Rows:
    """One row of each model, with every column that the version knows."""

    def __init__(self) -> None:
        self._made: dict[type[models.Model], models.Model] = {}

    def make(self, model: type[models.Model]) -> models.Model:
        """The row; with one of the other rows that it may name, where a constraint asks for one."""
        if model in self._made:
            return self._made[model]
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.GeneratedField)]
        others = [f for f in fields if f.remote_field is not None and f.remote_field.model is not model]
        values = {f.name: self.make(f.remote_field.model) for f in others if not f.null}
        values |= {f.name: _value(f) for f in fields if f.remote_field is None and _must_be_given(f)}
        for named in (None, *(field for field in others if field.null)):
            row = model(**values, **({} if named is None else {named.name: self.make(named.remote_field.model)}))
            with suppress(IntegrityError), transaction.atomic():
                row.save(force_insert=True)
                self._made[model] = row
                return row
        raise AssertionError(f"the version before can't write a row of {model._meta.db_table}")


def _must_be_given(field: models.Field[Any, Any]) -> bool:
    given = field.has_default() or field.has_db_default() or field.null
    return not (given or isinstance(field, models.AutoField))


def _value(field: models.Field[Any, Any]) -> Any:
    match field:
        case models.DateTimeField():
            return datetime(2026, 11, 3, tzinfo=UTC)
        case models.DateField():
            return date(2026, 11, 3)
        case models.UUIDField():
            return uuid.uuid4()
        case models.BooleanField():
            return False
        case models.IntegerField() | models.FloatField():
            return 1
        case models.GenericIPAddressField():
            return "192.0.2.1"
        case models.JSONField():
            return {}
        case models.BinaryField():
            return b""
        case models.CharField() | models.TextField():
            return str(field.choices[0][0]) if field.choices else "a"
    return []


# --- rows from before -------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_nodes_of_attempts_from_before_are_filled_once_however_often_it_begins() -> None:
    fill = import_module("triage.migrations.0028_attempt_nodes_of_earlier").fill
    for number in range(3):
        record_attempt(cast.facts(str(number)))
    first, *others = Attempt.objects.order_by("pk").values_list("pk", flat=True)
    AttemptNode.objects.exclude(attempt=first).delete()
    kept = set(AttemptNode.objects.values_list("pk", flat=True))
    for _ in range(2):
        with connection.schema_editor(atomic=False) as editor:
            fill(None, editor)
    assert kept < set(AttemptNode.objects.values_list("pk", flat=True)), "what was there is left alone"
    counted = AttemptNode.objects.values_list("attempt").annotate(rows=Count("pk"))
    assert dict(counted) == dict.fromkeys([first, *others], len(cast.NODES))
    assert verify().problems == []


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(database_server: None, broker: None) -> Iterator[str]:
    """URL of an empty database of one test's own."""
    facts, name = connection.settings_dict, f"migrated_{uuid.uuid4().hex[:8]}"
    server = psycopg.connect(
        host=facts["HOST"], port=facts["PORT"], user=facts["USER"], password=facts["PASSWORD"], dbname="postgres",
        autocommit=True,
    )  # fmt: skip
    with server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        url = f"postgresql://{facts['USER']}:{facts['PASSWORD']}@{facts['HOST']}:{facts['PORT']}/{name}"
        try:
            yield url
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    server.close()


def manage(url: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    argv = [sys.executable, "manage.py", *words]
    return subprocess.Popen(
        argv, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_migration_that_is_killed_in_the_middle_is_started_again_gives_way_and_ends(fresh: str) -> None:
    with psycopg.connect(fresh, autocommit=True) as other:
        for wanted in (3, 12):
            one = manage(fresh, "migrate", "--no-input")
            while _done(other) < wanted and one.poll() is None:
                time.sleep(0.005)
            assert one.poll() is None
            one.kill()
            one.communicate()
        with other.transaction():  # the service is up, and uses tables for longer than a migration waits for them
            other.execute("LOCK TABLE auth_user, triage_cluster IN ROW EXCLUSIVE MODE")
            last = manage(fresh, "migrate", "--no-input")
            assert last.stdout is not None
            said = next((line for line in last.stdout if "A table is in use" in line), "")
        rest, _ = last.communicate(timeout=120)
        assert (last.returncode, said.strip()) == (0, "A table is in use: giving way, then trying again."), rest
        known = {name for app, name in MigrationLoader(None).disk_migrations if app == "triage"}
        assert _done(other) == len(known)


def _done(other: psycopg.Connection[Any]) -> int:
    if other.execute("SELECT to_regclass('django_migrations')").fetchone() == (None,):
        return 0
    (count,) = other.execute("SELECT count(*) FROM django_migrations WHERE app = 'triage'").fetchone() or (0,)
    return int(count)


@pytest.mark.django_db(transaction=True)
def test_an_index_that_was_left_half_made_is_made_anew() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE halved (a int)")
        cursor.execute("INSERT INTO halved VALUES (1), (1)")
        with pytest.raises(Exception, match="could not create unique index"):
            cursor.execute("CREATE UNIQUE INDEX CONCURRENTLY half ON halved (a)")
        cursor.execute("SELECT to_regclass('half') IS NULL")
        assert cursor.fetchone() == (False,)
        call_command("migrate", verbosity=0)
        cursor.execute("SELECT to_regclass('half') IS NULL")
        assert cursor.fetchone() == (True,)
        cursor.execute("DROP TABLE halved")


@pytest.mark.django_db(transaction=True)
def test_two_migrations_do_not_run_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    facts = connection.settings_dict
    with psycopg.connect(
        host=facts["HOST"], port=facts["PORT"], user=facts["USER"], password=facts["PASSWORD"], dbname=facts["NAME"],
        autocommit=True,
    ) as other:  # fmt: skip
        other.execute("SELECT pg_advisory_lock(%s)", [migrate.LOCK])
        release = threading.Timer(0.5, other.execute, ["SELECT pg_advisory_unlock_all()"])
        began = time.monotonic()
        release.start()
        call_command("migrate", verbosity=1)
        assert time.monotonic() - began >= 0.5
        release.join()
    assert "Another migration of this database is at work" in capsys.readouterr().out
