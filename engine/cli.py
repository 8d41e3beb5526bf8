"""``python -m engine``: diagnose bundles, look after rules, scan a file."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from engine import __version__
from engine.hostlist import BadHostlist, expand_hostlist
from engine.model import Outcome
from engine.ruleset import Ruleset, RulesetError, check_file, load_ruleset

if TYPE_CHECKING:
    from engine.bundle import Bundle

OK, FAILED, WRONG_INPUT = 0, 1, 2
VERDICTS = {"hardware": 10, "network": 11, "storage": 12, "platform": 13, "scheduler": 14, "software": 15}
"""Exit codes of `diagnose --exit-by-verdict`; NOBODY when nothing is blamed."""
NOBODY = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 ok, 1 a check failed, 2 wrong input)."""
    args = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the same bytes whatever the locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        code: int = args.run(args)
        return code
    except RulesetError as error:
        print(error, file=sys.stderr)
        return WRONG_INPUT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="engine", description="Why did a distributed GPU job fail?")
    parser.add_argument("--version", action="version", version=__version__)
    packs = argparse.ArgumentParser(add_help=False)
    packs.add_argument(
        "--rules", action="append", type=Path, default=[], metavar="DIR", help="folder of more rule packs"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    diagnose = commands.add_parser("diagnose", parents=[packs], help="diagnose capture bundles, or logs of one job")
    diagnose.add_argument(
        "paths",
        nargs="+",
        type=str,
        metavar="PATH",
        help="bundles: a folder, .tar, .tar.gz, .tar.zst or .zip; or of one job the log files and what sacct, squeue, "
        "scontrol and kubectl print, or a folder or archive of them; - is stdin",
    )
    diagnose.add_argument("--job", default="", help="of log files: the job's id")
    diagnose.add_argument("--state", default="", help="of log files: how the job ended, e.g. FAILED")
    diagnose.add_argument(
        "--nodes", type=_nodes, default=[], help="of log files: the job's nodes, as Slurm writes them: gpu-[01-16,20]"
    )
    diagnose.add_argument(
        "--exit-by-verdict",
        action="store_true",
        help="exit with 0 succeeded, 10 hardware, 11 network, 12 storage, 13 platform, 14 scheduler, 15 software, "
        "20 nothing blamed; the highest of several",
    )
    diagnose.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    diagnose.add_argument(
        "--threads",
        type=_threads,
        default=min(os.cpu_count() or 1, 4),
        metavar="N",
        help="processors to use at most; default: all, up to 4",
    )
    diagnose.set_defaults(run=_diagnose)

    scan = commands.add_parser("scan", parents=[packs], help="every line of a file that a rule matches")
    scan.add_argument("file", type=Path)
    scan.set_defaults(run=_scan)

    rules = commands.add_parser("rules", help="check, list, show, test or lock rules")
    actions = rules.add_subparsers(required=True, metavar="ACTION")
    for name, run, about in (
        ("check", _rules_check, "check all packs"),
        ("list", _rules_list, "one line a rule"),
        ("patterns", _rules_patterns, "one regex a line, as ripgrep -f takes them"),
        ("lock", _rules_lock, "write rules.lock: id, version and content hash of every rule"),
    ):
        actions.add_parser(name, parents=[packs], help=about).set_defaults(run=run)
    show = actions.add_parser("show", parents=[packs], help="one rule, whole")
    show.add_argument("id")
    show.set_defaults(run=_rules_show)
    pages = actions.add_parser("pages", parents=[packs], help="write a page a family")
    pages.add_argument("folder", type=Path)
    pages.set_defaults(run=_rules_pages)
    test = actions.add_parser("test", help="check one pack file")
    test.add_argument("file", type=Path)
    test.set_defaults(run=_rules_test)
    return parser


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 64")
    return int(text)


def _nodes(text: str) -> list[str]:
    try:
        return expand_hostlist(text)
    except BadHostlist as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of nodes: {error}") from None


def _ruleset(args: argparse.Namespace) -> Ruleset:
    named = [Path(folder) for folder in os.environ.get("FAULTLINE_RULES", "").split(os.pathsep) if folder]
    return load_ruleset([*named, *args.rules])


def _diagnose(args: argparse.Namespace) -> int:
    from engine.bundle import BundleError
    from engine.loose import is_loose, open_any, open_logs

    ruleset = _ruleset(args)
    said = {"state": args.state, "nodes": args.nodes, "job": args.job}
    logs = [path for path in args.paths if is_loose(path)]
    answers = [open_any(Path(path), **said) for path in args.paths if path not in logs]
    names = [path for path in args.paths if path not in logs]
    if logs:
        answers.append(open_logs(logs, **said))
        names.append(" ".join(logs))
    codes = [OK]
    for name, opened in zip(names, answers, strict=True):
        try:
            with opened as bundle:
                codes.append(_answer(args, bundle, name, ruleset))
        except BundleError as error:
            print(f"{name}: {error}", file=sys.stderr)
            codes.append(WRONG_INPUT)
    return WRONG_INPUT if WRONG_INPUT in codes else max(codes)


def _answer(args: argparse.Namespace, bundle: Bundle, name: str, ruleset: Ruleset) -> int:
    from engine.diagnose import diagnose
    from engine.report import render

    found = diagnose(
        bundle.attempt, bundle.streams, ruleset, bundle=name, collected=bundle.reports, threads=args.threads
    )
    print(render(found, args.format), flush=True)
    if not args.exit_by_verdict or found.outcome == Outcome.SUCCEEDED:
        return OK
    return VERDICTS.get(found.domain, NOBODY)


def _scan(args: argparse.Namespace) -> int:
    from engine.bundle import loose_stream
    from engine.scan import Scanner

    if not args.file.is_file():
        print(f"{args.file}: no such file", file=sys.stderr)
        return WRONG_INPUT
    result = Scanner(_ruleset(args)).scan(loose_stream(args.file))
    for hit in result.hits:
        print(f"{hit.line}\t{hit.rule.id}\t{hit.rule.role}\t{hit.text}")
    return OK


def _rules_check(args: argparse.Namespace) -> int:
    ruleset = _ruleset(args)
    print(f"{len(ruleset.specs)} rules, {len(ruleset.rules)} meanings, ruleset {ruleset.fingerprint[:19]}: all hold")
    return OK


def _rules_list(args: argparse.Namespace) -> int:
    for rule in _ruleset(args).rules:
        print(f"{rule.id}\t{rule.role}\t{rule.domain or '-'}/{rule.sub_domain or '-'}\t{rule.title}")
    return OK


def _rules_patterns(args: argparse.Namespace) -> int:
    from engine.patterns import to_ripgrep

    for matcher in _ruleset(args).line_matchers:
        for pattern in matcher.spec.patterns:
            print(to_ripgrep(pattern))
    return OK


def _rules_show(args: argparse.Namespace) -> int:
    ruleset = _ruleset(args)
    found = [rule for rule in ruleset.rules if rule.id == args.id]
    if not found:
        print(f"{args.id}: no such rule", file=sys.stderr)
        return WRONG_INPUT
    print(msgspec.json.format(msgspec.json.encode(found[0], order="sorted"), indent=2).decode())
    return OK


def _rules_test(args: argparse.Namespace) -> int:
    if not args.file.is_file():
        print(f"{args.file}: no such file", file=sys.stderr)
        return WRONG_INPUT
    faults = check_file(args.file)
    print("\n".join(faults) or f"{args.file.name}: all examples hold")
    return FAILED if faults else OK


def _rules_lock(args: argparse.Namespace) -> int:
    from engine.ruleset import BUILTIN, lock_text

    (BUILTIN / "rules.lock").write_text(lock_text(_ruleset(args)))
    return OK


def _rules_pages(args: argparse.Namespace) -> int:
    from engine.rulebook import write_pages

    for path in write_pages(_ruleset(args), args.folder):
        print(path)
    return OK
