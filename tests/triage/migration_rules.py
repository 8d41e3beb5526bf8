"""What a migration may not do while the service is up, read from its SQL.

While it runs, and after it, the version before still works: with its own columns and none of the new ones. And nobody
may have to wait behind it for longer than a moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

RULES = {
    r"\bDROP COLUMN\b": "the version before still reads the column: first a release that doesn't, then this",
    r"\bDROP TABLE\b": "the version before still reads the table: first a release that doesn't, then this",
    r"\bRENAME\b": "the version before knows the old name: add the new one, write both, then remove the old one",
    r"\bADD COLUMN\b(?=[^,;]*\bNOT NULL\b)(?![^,;]*\b(?:DEFAULT|GENERATED)\b)": "the version before doesn't fill "
    "the column: give it db_default, or null",
    r"\bALTER COLUMN \S+ DROP DEFAULT\b": "the version before doesn't fill the column: give it db_default, which stays",
    r"\bALTER COLUMN \S+ SET NOT NULL\b": "reads the whole table under a lock, and the version before may write none: "
    "add a CHECK ... NOT VALID, validate it in a migration of its own",
    r"\bALTER COLUMN \S+ TYPE\b": "may write the whole table anew under a lock: a new column, then this one goes",
    r"\bCREATE (?:UNIQUE )?INDEX\b(?! CONCURRENTLY)": "nobody can write meanwhile: AddIndexConcurrently, "
    "with atomic = False",
    r"\bDROP INDEX\b(?! CONCURRENTLY)": "waits for everybody and everybody for it: RemoveIndexConcurrently",
    r"\bADD CONSTRAINT\b(?!.*\bNOT VALID\b)": "reads the whole table under a lock, and the version before may not keep "
    "to it: AddConstraintNotValid, then ValidateConstraint in a migration of its own",
    r"\bADD COLUMN\b[^;]*\bGENERATED\b[^;]*\bSTORED\b": "writes the whole table anew under a lock",
    r"\b(?:VACUUM FULL|CLUSTER|LOCK TABLE|TRUNCATE)\b": "locks everybody out",
}
_CREATED = re.compile(r'\bCREATE TABLE (?:IF NOT EXISTS )?"?(\w+)"?', re.IGNORECASE)
_ON = re.compile(r'\b(?:ALTER TABLE|ON)\s+(?:ONLY\s+)?"?(\w+)"?', re.IGNORECASE)
_BODY = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)


def complaints(statements: Iterable[str]) -> list[str]:
    """A line each. Of a table that the same migration creates everything is allowed: it is empty, and nobody's."""
    found, mine = [], set()
    for statement in statements:
        plain = " ".join(_BODY.sub("$$ $$", re.sub(r"--[^\n]*", " ", statement)).split())
        mine.update(name.lower() for name in _CREATED.findall(plain))
        table = _ON.search(plain)
        if table is not None and table[1].lower() in mine:
            continue
        for pattern, why in RULES.items():
            if re.search(pattern, plain, re.IGNORECASE):
                found.append(f"{plain[:120]}: {why}")
    return found
