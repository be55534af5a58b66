"""The interface of API modules: the context of a request, and the table that maps API keys to modules.

An API module (``milena/broker/apis/*.py``, ``milena/controller/apis/*.py``, one per API key) has ``handle(node, ctx,
request)``.

* By default ``request`` is the decoded kio entity. The handler returns the response's fields as a mapping, an
  awaitable of them, cooperative work that returns them (``protocol.cooperative``), or None if it has answered through
  ``ctx`` or will do so later.
* With ``RAW = True`` the third argument is the body as a ``memoryview`` of the receive buffer: valid only until the
  handler returns or yields, writable, and the handler answers through ``ctx``. It may do so later (delayed operations).
* Cooperative work runs up to its first yield at once. The rest gets its turns among other large requests
  (``node.serving.cooperative_requests``), while later requests of the connection wait.
* An optional ``failed(ctx, request, error)`` returns the response's fields for a KafkaError that escapes the handler;
  without it the error goes to the top-level ``error_code`` of the response.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from milena.node.metrics import Counter
from milena.node.request_meters import RequestErrors, RequestTimes, error_codes
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.requests import messages
from milena.protocol.requests.frames import SizedPart, part_length
from milena.protocol.requests.headers import RequestHeader, response_header
from milena.protocol.schemas.api_versions import NO_OTHERS
from milena.protocol.schemas.registry import Role, VersionRange, served
from milena.runtime.network import Part

P = ParamSpec("P")
T = TypeVar("T")
Fields: TypeAlias = Mapping[str, object]
Reply: TypeAlias = T | Awaitable[T | None] | Cooperative[T | Awaitable[T | None] | None] | None
"""What ``handle`` returns: the fields of a response, or an awaitable or cooperative work that returns them. In compiled
modules an Awaitable is a Generator, too, so check for Awaitable first. Only work that has yielded may return an
Awaitable."""
Answer: TypeAlias = Reply[Fields]
# Modules are found by name; each declares what it uses of the node, and the type of its request.
Handle: TypeAlias = Callable[[Any, "RequestContext", Any], Answer]
Failed: TypeAlias = Callable[["RequestContext", Any, KafkaError], Fields]


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request, in the form that authorizers use."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


@dataclass(slots=True)
class Caller:
    """The client of a connection, for the handlers of its requests. ApiVersions v3 and later set the software
    fields."""

    listener_name: str
    client_host: str
    principal: Principal = ANONYMOUS
    software_name: str = "unknown"
    software_version: str = "unknown"
    _callbacks: list[Callable[[], None]] = field(default_factory=list)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the connection has been closed."""
        self._callbacks.append(callback)

    def disconnected(self) -> None:
        """Call the callbacks: the connection has been closed."""
        for callback in self._callbacks:
            callback()
        self._callbacks.clear()


class Answers(Protocol):
    """Receives answered requests: a connection's slot queue, or the capture of an embedded request."""

    @property
    def closed(self) -> bool: ...

    def answered(self, ctx: RequestContext) -> None: ...

    def hold(self, ctx: RequestContext) -> None:
        """Make later requests of the connection wait until ``release``, or until this request is answered."""
        ...

    def release(self, ctx: RequestContext) -> None: ...

    def close(self, reason: str) -> None: ...


class Driver(Protocol):
    """Runs cooperative work of requests (``node.serving.cooperative_requests``)."""

    def resume(self, ctx: RequestContext, work: Cooperative[None]) -> None: ...

    def wait(self, ctx: RequestContext, size: int) -> bool: ...

    def proceed(self, ctx: RequestContext, work: Cooperative[None], size: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ApiModule:
    """The callables of one API module."""

    handle: Handle
    raw: bool = False
    failed: Failed | None = None


@dataclass(frozen=True, slots=True)
class RequestMeters:
    """The number of requests of one API and version, and the times and errors of all requests of the API."""

    requests: Counter
    times: RequestTimes
    errors: RequestErrors


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One served (API key, version): its module's callables and its metrics. ``name`` is Kafka's (``ListOffsets``)."""

    name: str
    handle: Handle
    raw: bool
    failed: Failed | None
    meters: RequestMeters
    by_origin: tuple[RequestMeters, RequestMeters] | None = None
    """Of Fetch: further meters of consumers' and of followers' requests."""


@dataclass(frozen=True, slots=True)
class RefusedPartitions:
    """The partitions of a request that a rule rejects, if only the handler can remove them (a Fetch has a session)."""

    error_of: Callable[[str | None, int], ErrorCode]
    """By topic name and partition; NONE if the partition is served."""
    handled: bool
    """Whether the request takes effect for them, and only their responses are replaced by errors."""


class RequestContext:
    """One request in progress, and the slot for its answer. Times are monotonic seconds."""

    __slots__ = (
        "answered_at",
        "answers",
        "api",
        "caller",
        "deferred",
        "driver",
        "forget",
        "handled_at",
        "header",
        "is_large",
        "memory",
        "origin",
        "parts",
        "received_at",
        "refused",
        "request",
        "started_at",
    )

    def __init__(
        self, header: RequestHeader, api: ServedApi, caller: Caller, answers: Answers, received_at: float
    ) -> None:
        self.header = header
        self.api = api
        self.caller = caller
        self.received_at = self.started_at = received_at
        """When the request was read, and when its handler was called."""
        self.handled_at = self.answered_at = -1.0
        """When the handler returned without an answer, and when there was one; -1 if that has not happened."""
        self.origin: RequestMeters | None = None
        """Of Fetch: the meters of consumers' or of followers' requests."""
        self.parts: list[Part] | None = None
        """The framed response once it exists; an empty list for a request without a response."""
        self.request: Any = None
        """The decoded request of an API without ``RAW``."""
        self.answers = answers
        """Receives the answer. A rule may intercept it."""
        self.forget: Callable[[], object] | None = None
        """Called if the connection is closed before the answer, to drop the operation that waits for this request."""
        self.refused: RefusedPartitions | None = None
        """The partitions that a rule rejects; the handler answers them with the rule's error."""
        self.driver: Driver | None = None
        """Runs the request's cooperative work. Set by the dispatcher."""
        self.is_large = False
        """Whether the request's work has yielded, so that its answer is encoded cooperatively, too."""
        self.memory = 0
        """Bytes of memory that the remaining cooperative work needs, set by the handler; 0 if unknown."""
        self.deferred: list[Cooperative[None]] | None = None
        """While a step of the request runs in a slot: the work to run after it in the same slot."""

    @property
    def listener_name(self) -> str:
        return self.caller.listener_name

    @property
    def principal(self) -> Principal:
        return self.caller.principal

    @property
    def client_host(self) -> str:
        return self.caller.client_host

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def closed(self) -> bool:
        """Whether the client has disconnected: operations that wait for this request may be dropped."""
        return self.answers.closed

    @property
    def answered(self) -> bool:
        return self.parts is not None

    def set_origin(self, *, follower: bool) -> None:
        """Count a fetch also among those of followers, or of consumers."""
        if self.api.by_origin is not None:
            self.origin = self.api.by_origin[follower]

    def note_error(self, code: int) -> None:
        """Count an error of the response, or of a part of it."""
        self.api.meters.errors.note(code)

    def note_errors(self, fields: Fields) -> Cooperative[None]:
        """Count all errors of a large response."""
        budget = YieldBudget()
        for code in error_codes(fields):
            if code:
                self.note_error(code)
            if budget.spend(1):
                yield

    def respond(self, parts: Sequence[SizedPart | Part]) -> None:
        """Send ``parts`` as the response's body, after its length and response header.

        A part that is not in memory must be a FileRange; SizedPart is its supertype without files, for the codecs.
        """
        header = self.header
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        size = len(head)
        for part in parts:
            size += part_length(part)
        framed: list[Any] = [size.to_bytes(4, "big") + head, *parts]
        self.set_response(framed)

    def respond_fields(self, **fields: object) -> None:
        """Send a response built from plain field values. If the request is large, encode the response cooperatively."""
        if self.is_large:
            self.resume(self.encoding(fields))
            return
        for code in error_codes(fields):
            if code:
                self.note_error(code)
        self.respond([messages.encode_response(self.header.api_key, self.header.api_version, **fields)])

    def encoding(self, fields: Fields) -> Cooperative[None]:
        """Encode a response and send it, unless the client has disconnected."""
        if self.closed:
            return
        yield from self.note_errors(fields)
        body = yield from messages.encode_large_response(self.header.api_key, self.header.api_version, **fields)
        if not self.closed:
            self.respond([body])

    def resume(self, work: Cooperative[None]) -> None:
        """Run ``work``, which continues or answers this request: at once up to its first yield, then in turns with
        other large requests. Raises what its first step raises."""
        if self.deferred is not None:
            self.deferred.append(work)
            return
        assert self.driver is not None
        self.driver.resume(self, work)

    def wait(self, size: int) -> bool:
        """Make later requests of the connection wait, because this one, of ``size`` bytes, takes effect after another
        node has answered: ``proceed`` must be called then. If too many bytes of requests wait already, close the
        connection and return False."""
        assert self.driver is not None
        return self.driver.wait(self, size)

    def proceed(self, work: Cooperative[None], size: int) -> None:
        """Run ``work``, which handles this request after its ``wait``. An error is answered, as one of a handler."""
        assert self.driver is not None
        self.driver.proceed(self, work, size)

    def no_response(self) -> None:
        """Free the slot without an answer (produce with acks=0)."""
        self.set_response([])

    def hold(self) -> None:
        """Make later requests of the connection wait until this one, which takes effect later, is released or
        answered."""
        self.answers.hold(self)

    def release(self) -> None:
        """Let later requests of the connection run: this one has taken effect, even if it is not answered yet."""
        self.answers.release(self)

    def disconnect(self, reason: str) -> None:
        """Close the connection instead of answering."""
        self.answers.close(reason)

    def lost(self) -> None:
        """Close the connection because the request will not be answered: an operation failed while the request waited.
        Otherwise the client would wait for its timeout."""
        if not self.answered and not self.closed:
            self.disconnect(f"a {self.api.name} request failed while it waited")

    def answering(self, step: Callable[P, None]) -> Callable[P, None]:
        """Wrap ``step``, which is called later and answers the request. If it raises, the connection is closed
        (``lost``) and the error is raised to the caller."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                step(*args, **kwargs)
            except Exception:
                self.lost()
                raise

        return guarded

    def set_response(self, parts: list[Part]) -> None:
        """Set the framed response; an empty list if the request has no response."""
        if self.parts is not None:
            raise BrokenInvariant(f"request {self.header} was answered twice")
        self.parts = parts
        self.answers.answered(self)


class ApiTable:
    """API keys and the modules that serve them, imported on first use.

    ``modules`` maps a key to a module name inside ``role_package``; names with a dot are absolute.
    """

    def __init__(
        self,
        role_package: str,
        modules: Mapping[ApiKey, str],
        hot: Sequence[ApiKey] = (),
        *,
        ranges: Mapping[ApiKey, VersionRange] = NO_OTHERS,
    ) -> None:
        """``hot`` are the keys whose modules ``preload`` imports. ``ranges``: served versions that are not those of the
        registry, as test peers have between each other."""
        self.ranges = ranges
        self._hot = hot
        self._names = {
            int(key): name if "." in name else f"{role_package}.{name}" for key, name in sorted(modules.items())
        }
        self._loaded: dict[int, ApiModule] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._names

    def missing(self, role: Role) -> list[str]:
        """The names of APIs that the registry lists for ``role`` and that have no module here."""
        return [key.name for key in served(role) if key not in self._names]

    def get(self, key: int) -> ApiModule:
        """Return the module for ``key``, imported if necessary. Raises KeyError if the key has no module."""
        api = self._loaded.get(key)
        if api is None:
            module = importlib.import_module(self._names[key])
            raw = getattr(module, "RAW", False)
            api = ApiModule(module.handle, raw, getattr(module, "failed", None))
            self._loaded[key] = api
        return api

    def preload(self) -> None:
        """Import the modules of the hot keys now."""
        for key in self._hot:
            self.get(key)
