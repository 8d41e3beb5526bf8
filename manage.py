#!/usr/bin/env python
"""Django's command line, with the project's settings."""

import sys


def main() -> None:
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(f"{error}: run `make setup`, then use .venv/bin/python manage.py") from None
    from django.db.utils import OperationalError

    from triage import env

    env.load_settings("manage.py", code=1)
    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        if "--traceback" in sys.argv:
            raise
        said = " ".join(str(error).split())
        raise SystemExit(
            f"manage.py: the database: {said}\nmanage.py doctor says what is wrong; --traceback shows where it happened"
        ) from None


if __name__ == "__main__":
    main()
