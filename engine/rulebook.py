"""Rules as pages for people: generated from the packs, never written by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.ruleset import Matcher, Rule, Ruleset


def write_pages(ruleset: Ruleset, folder: Path) -> list[Path]:
    """One Markdown page a family, and an index. Returns what was written; pages of gone families are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    families: dict[str, list[Matcher]] = {}
    for matcher in ruleset.matchers:
        families.setdefault(matcher.spec.id.partition(".")[0], []).append(matcher)
    pages = {f"{family}.md": _family(family, matchers) for family, matchers in sorted(families.items())}
    pages["README.md"] = _index(ruleset, families)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in sorted(pages)]


def _index(ruleset: Ruleset, families: dict[str, list[Matcher]]) -> str:
    roots = sum(rule.role in ("cause", "either") for rule in ruleset.rules)
    out = [
        "# Rules",
        "",
        "Generated from `engine/rules/*.yaml` by `python -m engine rules pages docs/rules`; don't edit.",
        "",
        f"{len(ruleset.specs)} rules with {len(ruleset.rules)} meanings, {roots} of which may be a root cause.",
        "",
        "| family | rules | meanings |",
        "|---|---:|---:|",
    ]
    for family, matchers in sorted(families.items()):
        out.append(f"| [{family}]({family}.md) | {len(matchers)} | {sum(1 for m in matchers for _ in m.rules())} |")
    return "\n".join(out) + "\n"


def _family(family: str, matchers: list[Matcher]) -> str:
    out = [f"# {family}", ""]
    for matcher in sorted(matchers, key=lambda m: m.spec.id):
        out += _rule(matcher)
    return "\n".join(out).rstrip() + "\n"


def _rule(matcher: Matcher) -> list[str]:
    spec = matcher.spec
    rule = matcher.meaning({})
    out = [f"## {spec.id}", "", f"**{spec.title}**", ""]
    if not spec.table:
        out += [_meaning(rule), ""]
    out += [f"*What to check next.* {rule.guide}", "", f"*What it does not prove.* {rule.does_not_prove}", ""]
    if spec.patterns:
        out += ["Looks for:", "", "```", *spec.patterns, "```", ""]
    if spec.examples.match:
        out += ["For example:", "", "```", spec.examples.match[0].line, "```", ""]
    if spec.table:
        out += ["| id | meaning | role | domain |", "|---|---|---|---|"]
        out += [_row(meaning) for meaning in _unique(matcher.rules())]
        out.append("")
    if rule.references:
        out += ["See " + ", ".join(f"<{link}>" for link in rule.references), ""]
    return out


def _unique(rules: Iterable[Rule]) -> list[Rule]:
    found = {(rule.id, rule.title): rule for rule in rules}
    return [found[key] for key in sorted(found)]


def _meaning(rule: Rule) -> str:
    where = f", {rule.domain} / {rule.sub_domain}" if rule.domain else ""
    return f"Role: {rule.role}{where}" + (f"; blames {rule.blames}" if rule.domain else "") + "."


def _row(rule: Rule) -> str:
    domain = f"{rule.domain} / {rule.sub_domain}" if rule.domain else ""
    title = rule.title.replace("|", "\\|")
    return f"| {rule.id} | {title} | {rule.role} | {domain} |"
