"""The way to the broker: kombu's for Redis, which here says a broken connection as what it is.

A worker that loses the broker lets its connection go and closes the channel. When a message was at work at that moment,
kombu wants to give it back over the connection that is gone, and ends in an AttributeError. Nobody expects that of a
broken connection, so the worker ended, and nobody was there when the broker came back. As a ConnectionError it is
expected everywhere: the worker connects anew. The message is given out again by the broker after its visibility
timeout, or by the sweep before that.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    def _connparams(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to the broker, of which this channel was one, is gone")
        return super()._connparams(*args, **kwargs)  # type: ignore[no-any-return]


class Transport(redis.Transport):
    Channel = Channel


def use() -> None:
    """For redis:// and rediss:// in this process."""
    TRANSPORT_ALIASES.update(redis=f"{__name__}:Transport", rediss=f"{__name__}:Transport")
