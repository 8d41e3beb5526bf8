"""Choosing and holding TCP ports of the loopback interface."""

from __future__ import annotations

import contextlib
import errno
import socket

from triage.supervisor.errors import DemoError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None = None) -> int:
    """The preferred port if it is free, else one that the system chooses."""
    if preferred and is_free(preferred):
        return preferred
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def listen(port: int) -> socket.socket:
    """A listening socket for the web server, held by the supervisor: a restarted web server loses no connection.

    Raises DemoError when the port is taken or not allowed.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise DemoError(
                f"port {port} is in use by another program: choose another one with `make demo PORT={port + 1}`"
            ) from None
        if error.errno == errno.EACCES:
            raise DemoError(
                f"port {port} needs more rights: choose one above 1023 with `make demo PORT=8000`"
            ) from None
        raise DemoError(f"cannot listen on {LOOPBACK}:{port}: {error.strerror}") from None
    return listener
