"""A bad network: before each server stands a proxy, which delays, narrows, breaks and forgets connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from triage.supervisor.ports import LOOPBACK

BLOCK = 1 << 14
PROBE = 10.0
"""Seconds after which a connection that the other side has forgotten is told so: what keepalive is set to."""


@dataclass(frozen=True)
class Toxic:
    """What is done to everything that passes, both ways."""

    latency: float = 0.0
    """Seconds for which each block waits, up to twice as long."""
    bandwidth: float = 0.0
    """Bytes a second of one connection; 0: any."""
    reset: float = 0.0
    """How likely a block is to end its connection, with RST, and not to arrive."""
    forgets: bool = False
    """Nothing passes and nobody is told. A connection that lost something so stays dead when all is well again,
    until a probe shows it: its peer, or a firewall between, has forgotten it."""


WELL = Toxic()


class Proxy:
    """Stands before the port that `target` names, on a port of its own."""

    def __init__(self, target: Callable[[], int], chance: random.Random) -> None:
        self._target, self._chance = target, chance
        self.toxic = WELL
        self.passed = self.broken = 0
        """Blocks that were passed on; connections that were broken."""
        self._loop = asyncio.new_event_loop()
        listening = socket.create_server((LOOPBACK, 0), backlog=256)
        self.port = int(listening.getsockname()[1])
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[listening, ready], name="proxy", daemon=True)
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @contextlib.contextmanager
    def suffering(self, toxic: Toxic, seconds: float):  # type: ignore[no-untyped-def]
        """For so long at least, and as long as the block lasts."""
        ends, self.toxic = time.monotonic() + seconds, toxic
        try:
            yield
            time.sleep(max(ends - time.monotonic(), 0))
        finally:
            self.toxic = WELL

    def _run(self, listening: socket.socket, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, sock=listening))
        ready.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))  # what was aborted says so to its transport
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(LOOPBACK, self._target())
        except OSError:
            _reset(writer)  # as if nobody listened
            return
        forgotten = asyncio.Event()
        pumps = [
            asyncio.ensure_future(self._pump(reader, back, forgotten)),
            asyncio.ensure_future(self._pump(there, writer, forgotten)),
        ]
        broken = True
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            broken = any(pump.exception() is not None for pump in done)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, back):
                _reset(end) if broken else end.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, forgotten: asyncio.Event) -> None:
        """Passes on until one side closes. Raises ConnectionError when the connection is to be broken."""
        while True:
            block = await source.read(BLOCK)
            toxic = self.toxic
            if toxic.forgets or forgotten.is_set():
                forgotten.set()
                await self._until_probed()
                raise ConnectionResetError("forgotten")
            if not block:
                return
            if self._chance.random() < toxic.reset:
                self.broken += 1
                raise ConnectionResetError("broken")
            if toxic.latency:
                await asyncio.sleep(toxic.latency * self._chance.uniform(1, 2))
            if toxic.bandwidth:
                await asyncio.sleep(len(block) / toxic.bandwidth)
            sink.write(block)
            await sink.drain()
            self.passed += 1

    async def _until_probed(self) -> None:
        while self.toxic.forgets:
            await asyncio.sleep(0.1)
        await asyncio.sleep(PROBE)
        self.broken += 1


def _reset(end: asyncio.StreamWriter) -> None:
    """Ends a connection with RST instead of FIN."""
    with contextlib.suppress(OSError):
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.transport.abort()
