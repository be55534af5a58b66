"""One connection to another node, opened on demand and kept open.

``request`` connects if needed, asks for the peer's versions once per connection (ApiVersions), sends, and waits for the
answer with the same correlation id. Several requests may be in flight; Kafka answers them in order. When the connection
breaks, each of them fails with ChannelError: whether the peer executed it is then unknown, and retrying is the caller's
decision. After a failed connect, the next attempt waits for a growing, jittered backoff.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from milena import VERSION
from milena.node.framing import KafkaFramer
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, error_name
from milena.protocol.requests import messages
from milena.protocol.requests.frames import ReceiveBuffers
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.requests.memory_budget import MemoryBudget
from milena.protocol.schemas.api_versions import (
    NO_EPOCH,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ClientSoftware,
    decode_api_versions_response,
    encode_api_versions_request,
)
from milena.protocol.schemas.registry import REGISTRY, VersionRange
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.containment import Containment
from milena.runtime.context import Runtime
from milena.runtime.network import Connection, FileRange, Part

T = TypeVar("T")

SOFTWARE: Final = ClientSoftware("milena", VERSION)
FIRST_BACKOFF: Final = 0.05
LAST_BACKOFF: Final = 1.0
JITTER: Final = 0.2
MAX_RESPONSE_BYTES: Final = 256 << 20
API_VERSIONS_VERSION: Final = 4


class ChannelError(ConnectionError):
    """The peer could not be reached, or the connection broke before the answer arrived."""


class Unreachable(ChannelError):
    """There was no connection: nothing was sent."""


class Traffic:
    """Counts the requests and bytes of one or more connections, without the lengths of frames."""

    __slots__ = ("received_bytes", "requests", "responses", "sent_bytes")

    def __init__(self) -> None:
        self.requests = self.responses = self.sent_bytes = self.received_bytes = 0


class Failing(Protocol):
    """A part of a response that has an error of its own."""

    @property
    def error_code(self) -> int: ...


def only(items: Sequence[T]) -> T:
    """The single element of an answer about one resource. Raises ChannelError if there are none or several."""
    if len(items) != 1:
        raise ChannelError(f"the answer has {len(items)} elements instead of one")
    return items[0]


@dataclass(slots=True)
class _Pending:
    key: int
    version: int
    decode: Callable[[memoryview], Any]
    future: asyncio.Future[Any]
    repeats: bool = False
    """Whether ``decode`` returns the body of the next request, or None if there are no more requests."""


class Channel:
    """A connection to ``host:port`` that is opened on first use. Several coroutines may share it."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        client_id: str,
        *,
        connect_timeout: float = 10.0,
        request_timeout: float = 30.0,
        traffic: Traffic | None = None,
    ) -> None:
        """``traffic`` counts the requests of this channel too."""
        self.host = host
        self.port = port
        self.versions: dict[int, VersionRange] = {}
        """The versions that the peer serves; set by each connect."""
        self.features: Mapping[str, int] = {}
        self.features_epoch = NO_EPOCH
        """The finalized features (KIP-584) at their epoch, as the peer knew them at the last connect."""
        self._runtime = runtime
        self._client_id = client_id
        self._connect_timeout = connect_timeout
        self._request_timeout = request_timeout
        self._connection: _PeerConnection | None = None
        self._connecting = asyncio.Lock()
        self._buffers = ReceiveBuffers(MemoryBudget(MAX_RESPONSE_BYTES, runtime.clock.monotonic))
        self._traffic = Traffic() if traffic is None else traffic
        self._backoff = FIRST_BACKOFF
        self._not_before = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"Channel({self.host}:{self.port})"

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.alive

    async def request(
        self, key: ApiKey, version: int | None = None, /, *, timeout: float | None = None, **fields: object
    ) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        """Send a request built from plain field values and return the decoded response, of the type that
        ``milena.protocol.apis`` declares for ``key``.

        ``version`` None takes the highest common one. Raises ChannelError, KafkaError UNSUPPORTED_VERSION if there is
        no common version, REQUEST_TIMED_OUT after ``timeout`` seconds. An answer that cannot be decoded closes the
        connection, and raises ChannelError.
        """
        connection = await self._connected()
        chosen = self.choose(key, version)
        body = messages.encode_request(key, chosen, **fields)
        return await self._exchange(
            connection, key, chosen, [body], lambda data: messages.decode_response(key, chosen, data), timeout
        )

    async def request_raw(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Part],
        decode: Callable[[memoryview], T],
        *,
        timeout: float | None = None,
    ) -> T:
        """Send an encoded body. ``decode`` gets the response's body in place: its memory is reused afterwards."""
        connection = await self._connected()
        return await self._exchange(connection, key, version, body, decode, timeout)

    async def repeat(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Part],
        decode: Callable[[memoryview], Sequence[Part] | None],
        *,
        timeout: float,
    ) -> None:
        """Send requests one after the other: ``decode`` reads an answer in place and returns the next body, which is
        sent in the same iteration of the loop; None ends the series. Raises as ``request`` does; an answer is overdue
        after ``timeout`` seconds, which is noticed after twice that time at the latest."""
        connection = await self._connected()
        future = connection.send(key, version, body, decode, repeats=True)
        assert future is not None
        try:
            while not future.done():
                answered = connection.answered
                await asyncio.wait((future,), timeout=timeout)
                if not future.done() and connection.answered == answered:
                    raise self._timed_out(connection, key, timeout)
            future.result()
        finally:
            future.cancel()

    async def send_only(self, key: ApiKey, version: int, body: Sequence[Part]) -> None:
        """Send a request that has no answer (produce with acks=0)."""
        connection = await self._connected()
        connection.send(key, version, body, None)

    async def connect(self) -> None:
        """Ensure that there is a connection. Raises ChannelError."""
        await self._connected()

    def choose(self, key: ApiKey, version: int | None = None, *, at_most: int | None = None) -> int:
        """The version to use on the current connection: ``version`` if the peer supports it, else the highest common
        one.

        Raises KafkaError UNSUPPORTED_VERSION.
        """
        theirs = self.versions.get(key)
        ours = REGISTRY[key].kafka
        if theirs is not None:
            if version is not None and theirs.includes(version):
                return version
            highest = min(theirs.max, ours.max if at_most is None else min(ours.max, at_most))
            if version is None and highest >= max(theirs.min, ours.min):
                return highest
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{self.host}:{self.port} serves {key.name} in versions {theirs or 'none'}, not {version or ours}",
        )

    def close(self) -> None:
        """Close for good; pending requests fail. Idempotent."""
        self._closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the current connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _exchange(
        self,
        connection: _PeerConnection,
        key: int,
        version: int,
        body: Sequence[Part],
        decode: Callable[[memoryview], T],
        timeout: float | None,
    ) -> T:
        seconds = self._request_timeout if timeout is None else timeout
        future = connection.send(key, version, body, decode)
        assert future is not None
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            # The answer may have arrived in the iteration of the loop in which the timer fired, if the iteration was
            # long.
            if not future.cancelled() and future.done():
                return future.result()
            raise self._timed_out(connection, key, seconds) from None

    def _timed_out(self, connection: _PeerConnection, key: int, seconds: float) -> KafkaError:
        """Close the connection, since a late answer would delay the following ones and the peer may be dead. Returns
        the error to raise."""
        if self._connection is connection:
            self.disconnect()
        message = f"{self.host}:{self.port} did not answer {ApiKey(key).name} within {seconds:g} s"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)

    async def _connected(self) -> _PeerConnection:
        if self._closed:
            raise Unreachable(f"the channel to {self.host}:{self.port} is closed")
        connection = self._connection
        if connection is not None and connection.alive:
            return connection
        async with self._connecting:
            connection = self._connection
            if connection is None or not connection.alive:
                connection = await self._open()
            return connection

    async def _open(self) -> _PeerConnection:
        clock = self._runtime.clock
        wait = self._not_before - clock.monotonic()
        if wait > 0:
            await clock.sleep(wait)
        address = f"{self.host}:{self.port}"
        connection = _PeerConnection(self._client_id, self._runtime.contained, address, self._traffic)
        framer = KafkaFramer(self._buffers, MAX_RESPONSE_BYTES)
        try:
            await self._runtime.network.connect(self.host, self.port, framer, connection, timeout=self._connect_timeout)
            async with asyncio.timeout(self._connect_timeout):
                known = await self._request_versions(connection)
        except OSError as error:
            connection.abort()
            factor = self._runtime.random.uniform(1 - JITTER, 1 + JITTER)
            self._not_before = clock.monotonic() + self._backoff * factor
            self._backoff = min(self._backoff * 2, LAST_BACKOFF)
            raise Unreachable(self._connect_failure(error)) from error
        except BaseException:
            connection.abort()
            raise
        if self._closed:
            connection.abort()
            raise Unreachable(f"the channel to {self.host}:{self.port} was closed")
        self._backoff = FIRST_BACKOFF
        self._connection = connection
        self.versions = dict(known.keys)
        self.features, self.features_epoch = known.finalized, known.finalized_epoch
        return connection

    def _connect_failure(self, error: OSError) -> str:
        """Return the message of ``error``. Those of the network port name the address; for later errors it is added
        here."""
        if error.strerror:
            return error.strerror
        detail = str(error) or f"no answer within {self._connect_timeout:g} s"
        return f"cannot connect to {self.host}:{self.port}: {detail}"

    async def _request_versions(self, connection: _PeerConnection) -> ApiVersionsResponse:
        """Send ApiVersions, and again in v0 if the peer does not support our version (KIP-511). Raises
        ChannelError."""
        for version in (API_VERSIONS_VERSION, 0):
            future = connection.send(
                ApiKey.API_VERSIONS,
                version,
                [encode_api_versions_request(version, ApiVersionsRequest(SOFTWARE))],
                functools.partial(decode_api_versions_response, version),
            )
            assert future is not None
            response = await future
            if response.error_code == ErrorCode.NONE:
                return response
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        raise ChannelError(f"{self.host}:{self.port} refused ApiVersions: {error_name(response.error_code)}")


class _PeerConnection:
    """One transport connection: correlation ids and their pending futures."""

    def __init__(self, client_id: str, contained: Containment, address: str, traffic: Traffic) -> None:
        self.alive = False
        self.answered = 0
        """The number of answers received."""
        self._client_id = client_id
        self._contained = contained
        self._address = address
        self._traffic = traffic
        self._connection: Connection | None = None
        self._next_id = 0
        self._pending: dict[int, _Pending] = {}

    def send(
        self,
        key: int,
        version: int,
        body: Sequence[Part],
        decode: Callable[[memoryview], T] | None,
        *,
        repeats: bool = False,
    ) -> asyncio.Future[T] | None:
        """Queue a request. The future fails with ChannelError when the connection is closed; None without
        ``decode``."""
        if decode is None:
            self._send(key, version, body, None)
            return None
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._send(key, version, body, _Pending(key, version, decode, future, repeats))
        return future

    def _send(self, key: int, version: int, body: Sequence[Part], pending: _Pending | None) -> None:
        if not self.alive or self._connection is None:
            raise Unreachable("the connection is closed")
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        head = request_header(key, version, correlation_id, self._client_id)
        size = len(head) + sum(part.length if isinstance(part, FileRange) else len(part) for part in body)
        if pending is not None:
            self._pending[correlation_id] = pending
        self._traffic.requests += 1
        self._traffic.sent_bytes += size
        self._connection.send([size.to_bytes(4, "big") + head, *body])

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self.alive = True

    def frame_received(self, frame: memoryview) -> None:
        pending = self._pending.pop(int.from_bytes(frame[:4], "big"), None)
        if pending is None:
            self._reject("sent an answer to no pending request")
            return
        self.answered += 1
        self._traffic.responses += 1
        self._traffic.received_bytes += len(frame)
        if pending.future.done():
            return
        try:
            _, body = parse_response_header(pending.key, pending.version, frame)
            result = pending.decode(body)
            if pending.repeats and result is not None and not pending.future.done():
                self._send(pending.key, pending.version, result, pending)
                return
        except DecodeError as error:
            self._reject(f"answered {ApiKey(pending.key).name} with an answer that cannot be decoded: {error}", pending)
        except (KafkaError, ChannelError) as error:
            if not pending.future.done():
                pending.future.set_exception(error)
        except Exception as error:
            self._contained.note(f"answer to {ApiKey(pending.key).name}", error, peer=self._address)
            self._reject(f"answered {ApiKey(pending.key).name} with an answer that cannot be used: {error}", pending)
        else:
            if not pending.future.done():
                pending.future.set_result(result)

    def _reject(self, what: str, pending: _Pending | None = None) -> None:
        """Abort the connection and fail all pending requests, because the peer sent an invalid answer."""
        reason = ChannelError(f"{self._address} {what}")
        if pending is not None and not pending.future.done():
            pending.future.set_exception(reason)
        if self._connection is not None:
            self._connection.abort()
        self._fail(reason)

    def writable(self) -> None:
        """Do nothing: requests are sent at once, and the callers bound their number."""

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._fail(None)

    def _fail(self, error: Exception | None) -> None:
        self.alive = False
        waiting, self._pending = list(self._pending.values()), {}
        for pending in waiting:
            if not pending.future.done():
                reason = "the connection was closed" if error is None else f"the connection broke: {error}"
                pending.future.set_exception(error if isinstance(error, ChannelError) else ChannelError(reason))
