"""The command `faultline`: the demo, and the engine's command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from triage.supervisor.demo import PROJECT, Demo
from triage.supervisor.errors import DemoError
from triage.supervisor.folder import Folder

ENGINE_COMMANDS = ("diagnose", "rules", "scan")
CLIENT_COMMANDS = ("submit", "watch")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when all went well or a signal ended the demo, 1 when the demo can't go on, 2 for wrong arguments."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and (words[0] in CLIENT_COMMANDS or (words[0] == "diagnose" and _names_server(words))):
        from triage.client import main as client_main

        return client_main(words)
    if words and words[0] in ENGINE_COMMANDS:
        from engine.cli import main as engine_main

        return engine_main(words)
    parser = argparse.ArgumentParser(
        prog="faultline",
        description="Says why a distributed GPU job failed.",
        epilog="faultline diagnose|rules|scan ... is the engine's command line: see faultline diagnose --help; "
        "faultline submit|watch ..., and diagnose --server URL, talk to a server",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="demo|clean|diagnose|rules|scan")
    demo = commands.add_parser("demo", help="run all of Faultline here, with samples")
    demo.add_argument("--port", type=_port, default=None, help="of the web server (default: $PORT, else 8000)")
    clean = commands.add_parser("clean", help="delete what the demo has kept")
    for command in (demo, clean):
        command.add_argument("--folder", type=Path, default=PROJECT / ".faultline", help="where it keeps everything")
    options = parser.parse_args(words)
    try:
        if options.command == "clean":
            Folder(options.folder).remove()
        else:
            Demo(Folder(options.folder), _chosen_port(options.port), dict(os.environ)).run()
    except DemoError as error:
        if error.tail:
            print("\n".join(f"  | {line}" for line in error.tail.splitlines()), file=sys.stderr)
        print(f"faultline: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, a file system that can't give a file to another user ...
        print(f"faultline: {options.command}: {error}", file=sys.stderr)
        return 1
    return 0


def _names_server(words: Sequence[str]) -> bool:
    return any(word == "--server" or word.startswith("--server=") for word in words)


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 1 to 65535")
    return int(text)


def _chosen_port(given: int | None) -> int:
    if given is not None:
        return given
    try:
        return _port(os.environ.get("PORT") or "8000")
    except argparse.ArgumentTypeError as error:
        raise DemoError(f"PORT: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
