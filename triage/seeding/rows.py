"""Rows on their way into a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import models


@dataclass
class Rows:
    """Rows of one table, by column."""

    model: type[models.Model]
    columns: Sequence[str]
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, *values: Any) -> None:
        self.rows.append(values)

    def write(self, cursor: Any) -> None:
        if not self.rows:
            return
        names = ", ".join(f'"{column}"' for column in self.columns)
        with cursor.copy(f"COPY {self.model._meta.db_table} ({names}) FROM STDIN") as copy:
            for row in self.rows:
                copy.write_row(row)
        self.rows.clear()
