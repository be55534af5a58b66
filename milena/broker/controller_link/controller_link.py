"""The broker's way to the active controller: one channel, moved on to the next address when it is not the one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from milena.node.links.outgoing import Channel, ChannelError, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeClusterResponse

RETRY_PAUSE: Final = 0.02
"""Seconds between attempts; a channel that cannot connect adds its own, growing pause."""
LONGEST_PAUSE: Final = 1.0
"""Seconds between attempts where connections break again and again before the answer, as with a peer that talks
rubbish."""
ASKING_TIMEOUT: Final = 60.0
"""Seconds that a new broker waits for a controller to tell the cluster's id."""
CONTROLLERS: Final = 2
"""The type of endpoint that DescribeCluster is sent to."""
PATIENCE: Final = 3.0
"""Seconds without a controller before the log says so: at a start, all nodes come up at once."""


class ControllerLink:
    """Requests to whichever controller is active. One connection, so requests arrive in the order they were made."""

    def __init__(
        self,
        runtime: Runtime,
        addresses: Callable[[], Sequence[tuple[str, int]]],
        client_id: str,
        *,
        request_timeout: float,
    ) -> None:
        """``addresses`` are asked for with the first request."""
        self._runtime = runtime
        self._find_addresses = addresses
        self._client_id = client_id
        self._timeout = request_timeout
        self._current = 0
        self._channel: Channel | None = None
        self._closed = False
        self._missing_since: float | None = None
        self._told = False
        self._broken = 0
        """Connections in a row that came about and brought no answer."""
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
        """Ask the active controller, again and again until it answers. Raises KafkaError REQUEST_TIMED_OUT after
        ``timeout`` seconds (``controller.socket.timeout.ms`` where None), and ChannelError when the link is closed.

        An attempt whose outcome is unknown is repeated: only for requests that bear it, as Kafka's own do.
        """
        clock = self._runtime.clock
        deadline = clock.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            left = deadline - clock.monotonic()
            if left <= 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no active controller at {self.address}")
            channel = self._open()
            try:
                async with asyncio.timeout(left):  # connecting may take longer than all of the time that there is
                    await channel.connect()
                response = await channel.request(key, version, timeout=deadline - clock.monotonic(), **fields)
            except TimeoutError:
                continue
            except ChannelError as error:
                if self._closed:
                    raise
                self._note_missing(error)
                self._broken += not isinstance(error, Unreachable)
            else:
                self._missing_since = None
                self._broken = 0
                if int(getattr(response, "error_code", 0)) != ErrorCode.NOT_CONTROLLER:
                    return response
            if self._channel is channel:
                self._rotate()
            await clock.sleep(min(RETRY_PAUSE * 2.0 ** min(self._broken, 10), LONGEST_PAUSE))

    async def cluster_id(self) -> str:
        """For a broker whose directories are new. Raises as ``request``."""
        asked: DescribeClusterResponse = await self.request(
            ApiKey.DESCRIBE_CLUSTER, timeout=ASKING_TIMEOUT, endpoint_type=CONTROLLERS
        )
        return asked.cluster_id

    def offered(self, key: ApiKey) -> int | None:
        """The highest version of an API that both sides have, None while there is no connection to know it from."""
        channel = self._channel
        return channel.choose(key) if channel is not None and channel.connected else None

    def _note_missing(self, error: ChannelError) -> None:
        """The log hears of each absence once."""
        now = self._runtime.clock.monotonic()
        if self._missing_since is None:
            self._missing_since, self._told = now, False
        elif not self._told and now - self._missing_since >= PATIENCE:
            self._told = True
            self._log.warning("controller not reached", controller=self.address, error=str(error))

    def close(self) -> None:
        """Close for good; what waits fails. Idempotent."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def _open(self) -> Channel:
        if self._closed:
            raise ChannelError("the broker stops")
        if self._channel is None:
            host, port = self._addresses[self._current]
            self._channel = Channel(self._runtime, host, port, self._client_id, request_timeout=self._timeout)
        return self._channel

    def _rotate(self) -> None:
        """Try the next address. A single one keeps its channel, which knows how long to wait."""
        if len(self._addresses) > 1 and self._channel is not None:
            self._channel.close()
            self._channel = None
            self._current = (self._current + 1) % len(self._addresses)
