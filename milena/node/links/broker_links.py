"""Connections of a broker to the inter-broker listeners of all brokers, itself included (the network client of Kafka's
InterBrokerSendThread).

Each purpose has its own links, as in Kafka: a peer answers the requests of one connection in order, so a request that
waits for replication would delay the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milena.node.links.outgoing import Channel, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.types import NodeId
from milena.runtime.context import Runtime


class BrokerLinks:
    """One connection per broker, opened on first use. A broker that restarts with another address gets a new one."""

    def __init__(
        self,
        runtime: Runtime,
        address: Callable[[NodeId], tuple[str, int] | None],
        client_id: str,
        *,
        request_timeout: float,
    ) -> None:
        """``address`` returns host and port of a broker's inter-broker listener; None if the metadata has none. It is
        called before each request. ``request_timeout``: seconds."""
        self._runtime = runtime
        self._address = address
        self._client_id = client_id
        self._request_timeout = request_timeout
        self._channels: dict[NodeId, Channel] = {}
        self._closed = False

    async def request(
        self, broker: NodeId, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: object
    ) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        """Send a request to ``broker`` and return its response, as ``Channel.request`` does.

        ``version`` None takes the highest common one. Raises ChannelError, in particular Unreachable if nothing was
        sent; KafkaError REQUEST_TIMED_OUT, after which the peer may still execute the request, or UNSUPPORTED_VERSION.
        """
        return await self._channel(broker).request(key, version, timeout=timeout, **fields)

    async def version(self, broker: NodeId, key: ApiKey) -> int:
        """The highest version of an API that both brokers serve, after connecting if necessary. Raises as
        ``request``."""
        channel = self._channel(broker)
        await channel.connect()
        return channel.choose(key)

    def knows(self, broker: NodeId) -> bool:
        """Whether the metadata has an address of ``broker``."""
        return self._address(broker) is not None

    def keep_only(self, is_kept: Callable[[NodeId], bool]) -> None:
        """Close the connections to the other brokers: they are fenced or unregistered. Requests that wait for their
        answers fail at once."""
        for broker in [known for known in self._channels if not is_kept(known)]:
            self._channels.pop(broker).close()

    def close(self) -> None:
        """Close all connections for good. Waiting and later requests raise ChannelError. Idempotent."""
        self._closed = True
        for channel in self._channels.values():
            channel.close()

    def _channel(self, broker: NodeId) -> Channel:
        address = self._address(broker)
        if self._closed or address is None:
            reason = "the broker is stopping" if self._closed else f"the metadata has no address of broker {broker}"
            raise Unreachable(reason)
        channel = self._channels.get(broker)
        if channel is None or (channel.host, channel.port) != address:
            if channel is not None:
                channel.close()
            channel = Channel(self._runtime, *address, self._client_id, request_timeout=self._request_timeout)
            self._channels[broker] = channel
        return channel
