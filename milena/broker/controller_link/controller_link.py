"""The broker's connection to the active controller, like Kafka's NodeToControllerChannelManager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from milena.node.links.outgoing import Channel, ChannelError, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.registry import VersionRange
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeClusterResponse

NOTHING: Final[Mapping[int, VersionRange]] = {}
RETRY_SECONDS: Final = 0.02
"""Seconds between attempts; the channel adds a growing pause between attempts to connect."""
MAX_RETRY_SECONDS: Final = 1.0
"""The maximum seconds between attempts if connections repeatedly break before a response, as with a peer that violates
the protocol."""
CLUSTER_ID_TIMEOUT: Final = 60.0
"""Seconds that a new broker waits for the cluster id from a controller."""
CONTROLLERS: Final = 2
"""The endpoint type of controllers in DescribeCluster."""
LOG_AFTER_SECONDS: Final = 3.0
"""Seconds without a controller until it is logged: when a cluster starts, controllers are unavailable for a while."""


class ControllerLink:
    """Sends requests to the active controller: over one connection, so that they arrive in order, to the next address
    if a controller is not active or not reachable."""

    def __init__(
        self,
        runtime: Runtime,
        addresses: Callable[[], Sequence[tuple[str, int]]],
        client_id: str,
        *,
        request_timeout: float,
    ) -> None:
        """``addresses`` is called with the first request."""
        self._runtime = runtime
        self._find_addresses = addresses
        self._client_id = client_id
        self._timeout = request_timeout
        self._current = 0
        self._channel: Channel | None = None
        self._closed = False
        self._missing_since: float | None = None
        self._is_logged = False
        self._consecutive_breaks = 0
        """The number of consecutive connections that broke before a response."""
        self._log = get_logger("controller-link")

    @cached_property
    def _addresses(self) -> Sequence[tuple[str, int]]:
        addresses = self._find_addresses()
        assert addresses, "a broker needs the address of a controller"
        return addresses

    @property
    def address(self) -> str:
        host, port = self._addresses[self._current]
        return f"{host}:{port}"

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: object
    ) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        """Send a request until the active controller answers it. Raises KafkaError REQUEST_TIMED_OUT after ``timeout``
        seconds (None: ``controller.socket.timeout.ms``), and ChannelError when the link is closed.

        A request whose result is unknown is sent again, so it must be idempotent, as Kafka's are.
        """
        clock = self._runtime.clock
        deadline = clock.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            remaining = deadline - clock.monotonic()
            if remaining <= 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no active controller at {self.address}")
            channel = self._open()
            try:
                async with asyncio.timeout(remaining):  # connecting has no timeout of its own
                    await channel.connect()
                response = await channel.request(key, version, timeout=deadline - clock.monotonic(), **fields)
            except TimeoutError:
                continue
            except ChannelError as error:
                if self._closed:
                    raise
                self._note_missing(error)
                self._consecutive_breaks += not isinstance(error, Unreachable)
            else:
                self._missing_since = None
                self._consecutive_breaks = 0
                if int(getattr(response, "error_code", 0)) != ErrorCode.NOT_CONTROLLER:
                    return response
            if self._channel is channel:
                self._rotate()
            await clock.sleep(min(RETRY_SECONDS * 2.0 ** min(self._consecutive_breaks, 10), MAX_RETRY_SECONDS))

    @property
    def served(self) -> Mapping[int, VersionRange]:
        """The versions that the controller serves, by API key: of the last connection; empty before the first."""
        return self._channel.versions if self._channel is not None else NOTHING

    async def cluster_id(self) -> str:
        """The cluster id, for a broker with unformatted directories. Raises like ``request``."""
        response: DescribeClusterResponse = await self.request(
            ApiKey.DESCRIBE_CLUSTER, timeout=CLUSTER_ID_TIMEOUT, endpoint_type=CONTROLLERS
        )
        return response.cluster_id

    def offered(self, key: ApiKey) -> int | None:
        """The highest version of an API that both sides support; None while not connected."""
        channel = self._channel
        return channel.choose(key) if channel is not None and channel.connected else None

    def _note_missing(self, error: ChannelError) -> None:
        """Log once if no controller has been reached for ``LOG_AFTER_SECONDS``."""
        now = self._runtime.clock.monotonic()
        if self._missing_since is None:
            self._missing_since, self._is_logged = now, False
        elif not self._is_logged and now - self._missing_since >= LOG_AFTER_SECONDS:
            self._is_logged = True
            self._log.warning("controller not reached", controller=self.address, error=str(error))

    def close(self) -> None:
        """Close the link. Waiting and later requests raise ChannelError."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def _open(self) -> Channel:
        if self._closed:
            raise ChannelError("the broker is stopping")
        if self._channel is None:
            host, port = self._addresses[self._current]
            self._channel = Channel(self._runtime, host, port, self._client_id, request_timeout=self._timeout)
        return self._channel

    def _rotate(self) -> None:
        """Use the next address for the next attempt. With a single address the channel is kept, because it has the
        growing pause between attempts to connect."""
        if len(self._addresses) > 1 and self._channel is not None:
            self._channel.close()
            self._channel = None
            self._current = (self._current + 1) % len(self._addresses)
