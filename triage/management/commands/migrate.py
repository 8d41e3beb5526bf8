"""`manage.py migrate`: Django's, made for a database that is in use, and for being killed in the middle."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import errors, sql

LOCK = 0x6661756C746C696E
"""Of the database, for whoever migrates it. Its connection holds it, so it ends with it."""
PATIENCE_MS = 4000
"""So long a step waits for a table. Whoever wants the table meanwhile waits behind it, so it then gives way."""
TRIES = 30
PAUSE = 2.0
"""Seconds that others are let by before the next try."""
HALVES = """
SELECT place.nspname, half.relname FROM pg_index
JOIN pg_class half ON half.oid = indexrelid JOIN pg_namespace place ON place.oid = half.relnamespace
WHERE NOT indisvalid AND place.nspname = ANY (current_schemas(false)) ORDER BY half.relname
"""


class Command(migrate.Command):
    help = f"{migrate.Command.help} One at a time; gives way to who uses a table; goes on where it was interrupted."

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        for left in reversed(range(TRIES)):
            self._alone(connection, options["verbosity"])
            _remove_halves(connection)
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, false)", [str(PATIENCE_MS)])
            try:
                super().handle(*args, **options)
            except OperationalError as error:
                connection.close()
                connection.connect()  # Django leaves the transaction of a migration that failed open
                if not left or not isinstance(error.__cause__, errors.LockNotAvailable):
                    raise
                self.stdout.write("\n  A table is in use: giving way, then trying again.")
                time.sleep(PAUSE)
            else:
                with connection.cursor() as cursor:
                    cursor.execute("RESET lock_timeout")
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
                return

    def _alone(self, connection: BaseDatabaseWrapper, verbosity: int) -> None:
        """Waits for another one. One that was killed holds the lock until the server has noticed, and undone it."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
            if cursor.fetchone() == (True,):
                return
            if verbosity:
                self.stdout.write("Another migration of this database is at work: waiting for it.")
            cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])


def _remove_halves(connection: BaseDatabaseWrapper) -> None:
    """An index that was being made beside the work when its migration was interrupted stays, half done and in the way
    of the next try.
    """
    with connection.cursor() as cursor:
        cursor.execute(HALVES)
        for place, name in cursor.fetchall():
            cursor.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(place, name)))
