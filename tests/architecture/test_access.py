"""Reading goes through what knows who looks: no way around it in selectors, pages and API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READERS = sorted(
    path
    for part in ("selectors", "web", "api", "compat", "templatetags")
    for path in (ROOT / "triage" / part).rglob("*.py")
)
AROUND = {"_base_manager", "_default_manager", "objects.raw", "cursor", "connection", "connections"}
"""Names by which a query would leave out the check: triage/access/sql.py is for SQL written by hand."""


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
            if isinstance(node.value, ast.Attribute):
                yield node.lineno, f"{node.value.attr}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django.db"):
            yield from ((node.lineno, alias.name) for alias in node.names)


def joins_to_incidents(tree: ast.AST) -> Iterator[int]:
    """Who sees an attempt need not see its incident, so an incident never comes by a join from an attempt."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "select_related":
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if any(word.split("__")[0] in ("membership", "merged_into", "split_from") for word in words):
                yield node.lineno


@pytest.mark.parametrize("path", READERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_query_goes_around_the_check(path: Path) -> None:
    tree = ast.parse(path.read_text())
    around = [f"line {line}: {name}" for line, name in names_in(tree) if name in AROUND]
    around += [f"line {line}: select_related of an incident" for line in joins_to_incidents(tree)]
    assert around == []


def test_that_check_finds_what_goes_around() -> None:
    bad = ast.parse(
        "from django.db import connection\n"
        "Attempt._base_manager.get(pk=1)\n"
        "Attempt.objects.raw('SELECT')\n"
        "Attempt.objects.select_related('cluster', 'membership__incident')\n"
    )
    assert {name for _, name in names_in(bad) if name in AROUND} == {"connection", "_base_manager", "objects.raw"}
    assert list(joins_to_incidents(bad)) == [4]
