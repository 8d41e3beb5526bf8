"""Starting an embedded server and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from triage.supervisor.errors import DemoError
from triage.supervisor.postgres import Postgres
from triage.supervisor.process import Child
from triage.supervisor.valkey import Valkey

START_TIMEOUT = 120.0  # seconds; Postgres may have to replay its log first


def start(
    server: Postgres | Valkey,
    run: Callable[[Child], None] = Child.start,
    pause: Callable[[float], None] = time.sleep,
) -> Child:
    """Start a prepared server and wait until it answers. Raises DemoError, with the server ended, when it doesn't.

    The port was free when it was chosen; if somebody took it meanwhile, another one is chosen, twice at most.
    """
    for attempt in range(3):
        child = server.child()
        try:
            run(child)
            deadline = time.monotonic() + START_TIMEOUT
            while child.running() and not server.ready():
                if time.monotonic() > deadline:
                    raise DemoError(f"{child.name} does not answer: see {child.log}", child.tail())
                pause(0.05)
        except BaseException:
            child.ask_to_stop()
            child.kill_group()
            raise
        if child.running():
            return child
        if "Address already in use" not in child.tail() or attempt == 2:
            break
        server.choose_another_port()
    raise DemoError(f"{child.name} ended at its start ({child.how_it_ended()}): see {child.log}", child.tail())
