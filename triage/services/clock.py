"""The database's clock: the one on which all processes agree, whatever their machines think what time it is.

Leases, what is due and what waits are set and judged by it. A machine whose clock is stepped, or runs fast, then takes
over nothing that another one still does, and keeps nothing from being done.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """What time it is now, also within a long transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment
