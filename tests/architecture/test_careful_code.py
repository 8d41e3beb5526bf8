"""What a review would stop: markup that is trusted, scripts within pages, SQL put together from texts, what was sent
spread over a model, secrets compared letter by letter. A place that is meant so says why, beside it or here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = sorted(path for folder in ("triage", "connectors", "engine") for path in (ROOT / folder).rglob("*.py"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))

# --- templates --------------------------------------------------------------------------------------------------------

_TRUSTED = re.compile(r"\|\s*safe\b|\|\s*safeseq\b|{%-?\s*autoescape\s+off|{%-?\s*load\s+[^%]*\bunsafe\b")
_INLINE = re.compile(
    r"<script(?![^>]*\bsrc=)[^>]*>|<style\b|\sstyle\s*=|\son[a-z]+\s*=|javascript:|\bhx-on\b|\bhx-vals\s*=\s*[\"']js:"
    r"|\bhx-(?:eval|vars)\b",
    re.IGNORECASE,
)
_NEW_WINDOW = re.compile(r"<a\b[^>]*target=[\"']_blank[\"'][^>]*>")
_DATA_SCRIPT = re.compile(r"<script[^>]*type=[\"']application/json[\"']")


def trouble_in(text: str) -> list[str]:
    """What is wrong with a template."""
    found = [match.group() for match in _TRUSTED.finditer(text)]
    text = re.sub(r"{%.*?%}|{{.*?}}", "", text, flags=re.DOTALL)
    found += [match.group() for match in _INLINE.finditer(text) if not _DATA_SCRIPT.match(match.group())]
    found += [match.group() for match in _NEW_WINDOW.finditer(text) if "noopener" not in match.group()]
    return found


@pytest.mark.parametrize(
    "text",
    [
        "{{ title|safe }}", "{{ title | safe }}", "{% autoescape off %}", "<script>go()</script>", "<p style='x'>",
        "<a onclick=x>", "<a href='javascript:x'>", "<style>", "<div hx-on:click='x'>", "<a target='_blank' href='x'>",
        "<b hx-vals='js:{x}'>",
    ],
)  # fmt: skip
def test_what_is_looked_for_in_templates_is_found(text: str) -> None:
    assert trouble_in(text)


def test_templates_trust_nothing_and_hold_no_script_and_no_style() -> None:
    assert len(TEMPLATES) > 50
    assert {str(path.relative_to(ROOT)): found for path in TEMPLATES if (found := trouble_in(path.read_text()))} == {}


# --- code -------------------------------------------------------------------------------------------------------------

_MARKS = {"mark_safe", "SafeString", "SafeText", "Markup"}
_RAW = {"raw", "extra", "RawSQL"}
_SENT = {"POST", "GET", "data", "query_params", "FILES"}
_SECRET = re.compile(r"(?:^|_)(?:token|secret|password|signature|digest|hmac|nonce)$", re.IGNORECASE)


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_built(node: ast.AST) -> bool:
    """A text that something is put into: an f-string with a value, +, %, .format."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        return not (_is_plain(node.left) and _is_plain(node.right))
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"):
        return False
    made = node.func.value
    return not (
        isinstance(made, ast.Call) and name_of(made.func) == "SQL" and all(map(_is_plain, made.args))
    )  # psycopg's


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.BinOp) and _is_plain(node.left) and _is_plain(node.right)
    )


def is_sent(node: ast.AST) -> bool:
    """`request.POST`, `request.data` and the like, also as `.dict()` or `dict(...)`."""
    if isinstance(node, ast.Call):
        return is_sent(node.func.value) if isinstance(node.func, ast.Attribute) else any(map(is_sent, node.args))
    return isinstance(node, ast.Attribute) and node.attr in _SENT and name_of(node.value) in ("request", "_request")


def findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and kind of everything that has to be meant so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = name_of(node.func)
            if called in _MARKS:
                yield node.lineno, "markup"
            if called in _RAW and isinstance(node.func, ast.Attribute) and name_of(node.func.value) == "objects":
                yield node.lineno, "raw SQL"
            if called == "RawSQL" or (called in ("execute", "executemany") and node.args and is_built(node.args[0])):
                yield node.lineno, "built SQL"
            if any(keyword.arg is None and is_sent(keyword.value) for keyword in node.keywords):
                yield node.lineno, "spread"
            if called == "setattr" and len(node.args) == 3 and any(map(is_sent, ast.walk(node.args[2]))):
                yield node.lineno, "spread"
            if called == "csrf_exempt":
                yield node.lineno, "without CSRF"
        elif isinstance(node, ast.ClassDef):
            bases = {name_of(base) for base in node.bases}
            if bases & {"ModelForm", "ModelSerializer", "BaseModelForm", "HyperlinkedModelSerializer"}:
                yield node.lineno, "spread"
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            sides = [node.left, *node.comparators]
            plain = any(isinstance(side, ast.Constant) for side in sides)
            if not plain and any(_SECRET.search(name_of(side)) for side in sides):
                yield node.lineno, "compared secret"
        elif isinstance(node, ast.Name) and node.id == "csrf_exempt":
            yield node.lineno, "without CSRF"


_LEASE = "a lease's mark is between workers and the database; nobody sends one"
ALLOWED: dict[tuple[str, str], str] = {
    ("triage/access/sql.py", "built SQL"): "what is put in is SQL that Django made, its values apart",
    ("triage/seeding/load.py", "built SQL"): "names of tables and sequences of our own models",
    ("triage/services/instance.py", "built SQL"): "names of tables of our own models, quoted",
    ("triage/services/collecting.py", "compared secret"): _LEASE,
    ("triage/services/diagnoses.py", "compared secret"): _LEASE,
    ("triage/services/triage.py", "compared secret"): _LEASE,
    ("triage/templatetags/faultline.py", "markup"): "each part is escaped",
    ("triage/web/markdown.py", "markup"): "nh3 has cleaned it",
}
"""(file, kind) -> why it is meant so."""


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("mark_safe(x)", "markup"), ("Attempt.objects.raw(q)", "raw SQL"),
        ("cursor.execute(f'SELECT {x}')", "built SQL"),
        ("cursor.execute('SELECT %s' % x)", "built SQL"), ("cursor.execute('a' + x)", "built SQL"),
        ("cursor.execute('{}'.format(x))", "built SQL"), ("cursor.execute(sql.SQL(x).format(y))", "built SQL"),
        ("Attempt(**request.POST.dict())", "spread"), ("rows.update(**request.data)", "spread"),
        ("setattr(a, k, request.POST[k])", "spread"), ("class F(ModelForm): pass", "spread"),
        ("if token == sent: pass", "compared secret"), ("a.digest != b", "compared secret"),
        ("@csrf_exempt\ndef f(): pass", "without CSRF"),
    ],
)  # fmt: skip
def test_what_is_looked_for_in_code_is_found(code: str, kind: str) -> None:
    assert kind in {found for _, found in findings(ast.parse(code))}


def test_code_says_why_where_it_does_what_a_review_would_stop() -> None:
    found: dict[tuple[str, str], list[int]] = {}
    for path in CODE:
        name = str(path.relative_to(ROOT))
        for line, kind in findings(ast.parse(path.read_text())):
            found.setdefault((name, kind), []).append(line)
    assert {key: lines for key, lines in found.items() if key not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found), "an exception that nothing needs any more"
