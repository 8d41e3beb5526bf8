"""What is done to the network between clients, services and servers: `tests.chaos.proxy` stands before each server."""

from __future__ import annotations

import random

from tests.chaos.installation import Installation
from tests.chaos.proxy import Toxic


def slow_network(installation: Installation, chance: random.Random) -> str:
    """Every block waits; a page or a transaction asks dozens of times."""
    before, latency = chance.choice(("postgres", "valkey", "web")), chance.uniform(0.02, 0.2)
    return _suffer(installation, chance, before, Toxic(latency=latency), f"{latency * 1000:.0f} ms and more each way")


def narrow_network(installation: Installation, chance: random.Random) -> str:
    before, width = chance.choice(("postgres", "valkey", "web")), chance.uniform(10_000, 100_000)
    return _suffer(installation, chance, before, Toxic(bandwidth=width), f"{width / 1000:.0f} KB a second")


def broken_connections(installation: Installation, chance: random.Random) -> str:
    """Also after the server has done what it was asked, and before it could say so."""
    before, share = chance.choice(("postgres", "valkey", "web")), chance.uniform(0.03, 0.3)
    return _suffer(installation, chance, before, Toxic(reset=share), f"{share:.0%} of blocks end their connection")


def half_open_connections(installation: Installation, chance: random.Random) -> str:
    """Nobody is told that the other side is gone, until a probe finds out."""
    before = chance.choice(("postgres", "valkey", "web"))
    return _suffer(installation, chance, before, Toxic(forgets=True), "nothing passes, connections stay half open")


def _suffer(installation: Installation, chance: random.Random, before: str, toxic: Toxic, words: str) -> str:
    seconds, proxy = chance.uniform(4, 8), installation.network[before]
    broken = proxy.broken
    with proxy.suffering(toxic, seconds):
        pass
    told = f", {proxy.broken - broken} broken" if proxy.broken > broken else ""
    return f"network before {before} for {seconds:.0f} s: {words}{told}"
