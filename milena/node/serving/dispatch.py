"""Dispatch of a parsed request to its API module: served versions, handlers, error responses.

One dispatcher serves one role (broker or controller) of one node, for connections and for requests embedded in an
Envelope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Final

from milena.node.api import ApiTable, Fields, Handle, RequestContext, RequestMeters, ServedApi
from milena.node.metrics import Metrics
from milena.node.request_meters import RequestErrors, request_times
from milena.node.rules.rules import Rules
from milena.node.serving.cooperative_requests import CooperativeRequests, Pending
from milena.node.serving.scheduler import Scheduler
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.schemas.registry import Role, served
from milena.protocol.schemas.undecodable import DecodeError
from milena.releases import NEWEST
from milena.runtime.context import Runtime
from milena.runtime.tasks import Tasks

DECODED_BODY_LIMIT: Final = 8 << 20
"""Maximum bytes of a decoded request. Decoding takes about 1 us per element on the loop, so a request of
``socket.request.max.bytes`` could block a node for minutes."""
LARGE_BODIES: Final = frozenset({ApiKey.PRODUCE, ApiKey.ENVELOPE, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""APIs whose bodies are mostly opaque bytes, which need no decoding: DECODED_BODY_LIMIT does not apply."""
PLAIN_BODY_BYTES: Final = 16 << 10
"""Maximum bytes of a request that is decoded at once. A larger request may have thousands of elements: it is decoded
cooperatively, while later requests of its connection wait."""


class Dispatcher:
    """Runs requests of one role. ``node`` is passed to the modules unchanged."""

    def __init__(
        self,
        runtime: Runtime,
        node: Any,  # noqa: ANN401 - each API module declares what it needs of the node
        role: Role,
        apis: ApiTable,
        metrics: Metrics,
        tasks: Tasks,
        rules: Rules,
        release: str = NEWEST,
    ) -> None:
        """``release``: the release whose versions are served."""
        self.runtime = runtime
        self.rules = rules
        self.role = role
        self._node = node
        self._apis = apis
        self._metrics = metrics
        self._tasks = tasks
        ranges = {**served(role, release), **apis.ranges}
        self._ranges = {int(key): versions for key, versions in ranges.items() if key in apis}
        self._bound: dict[int, ServedApi] = {}
        self.scheduler = Scheduler(runtime.clock)
        self._cooperative = CooperativeRequests(self.scheduler, tasks, self._refuse)

    def find(self, key: int, version: int) -> ServedApi | None:
        """Return the handler for an API version; None if this role does not serve the version. ApiVersions is served in
        any version, to answer UNSUPPORTED_VERSION (KIP-511)."""
        bound = self._bound.get(key << 16 | version)
        return bound if bound is not None else self._bind(key, version)

    def _bind(self, key: int, version: int) -> ServedApi | None:
        versions = self._ranges.get(key)
        if versions is None:
            return None
        known = versions.includes(version)
        if not known and key != ApiKey.API_VERSIONS:
            return None
        name = api_name(key)
        module = self._apis.get(key)
        text = str(version) if known else "unsupported"
        by_origin = None
        if key == ApiKey.FETCH:
            by_origin = self._meters("FetchConsumer", text), self._meters("FetchFollower", text)
        meters = self._meters(name, text)
        bound = ServedApi(name, module.handle, module.raw, module.failed, meters, by_origin)
        if known:
            self._bound[key << 16 | version] = bound
        return bound

    def _meters(self, request: str, version: str) -> RequestMeters:
        requests = self._metrics.counter(
            "kafka_network_requestmetrics_requestspersec_total",
            "Requests by API and version.",
            request=request,
            version=version,
        )
        return RequestMeters(requests, request_times(self._metrics, request), RequestErrors(self._metrics, request))

    def run(self, ctx: RequestContext, body: memoryview) -> None:
        """Run the handler of one request. The request is answered, or its connection closed, now or by a pending
        operation."""
        api = ctx.api
        ctx.driver = self._cooperative
        if len(body) > DECODED_BODY_LIMIT and ctx.header.api_key not in LARGE_BODIES:
            ctx.disconnect(f"a {api.name} request of {len(body)} bytes is larger than {DECODED_BODY_LIMIT}")
            return
        try:
            if api.raw:
                answer = api.handle(self._node, ctx, body)
            elif len(body) > PLAIN_BODY_BYTES:
                self._cooperative.queue(ctx, self._large(ctx, api.handle, bytes(body)), len(body))
                return
            else:
                ctx.request = messages.decode_request(ctx.header.api_key, ctx.header.api_version, body)
                answer = api.handle(self._node, ctx, ctx.request)
            if answer is None:
                return
            if isinstance(answer, Mapping):
                ctx.respond_fields(**answer)
                return
            if not isinstance(answer, Awaitable):
                self._cooperative.start(ctx, _answered(ctx, answer), len(body))
                return
        except DecodeError as error:
            ctx.disconnect(f"undecodable request body: {error}")
        except Exception as failure:
            self._refuse(ctx, failure)
        else:
            self._tasks.attempt(self._finish(ctx, answer), name=f"answer {api.name}")

    async def _finish(self, ctx: RequestContext, answer: Awaitable[Fields | None]) -> None:
        try:
            fields = await answer
            if fields is not None and not ctx.closed:
                ctx.respond_fields(**fields)
        except DecodeError as error:
            ctx.disconnect(f"undecodable request body: {error}")
        except Exception as failure:
            self._refuse(ctx, failure)

    def _large(self, ctx: RequestContext, handle: Handle, body: bytes) -> Cooperative[Pending]:
        """Decode and handle a large request. Returns an awaitable of the response's fields if the handler returned
        one."""
        header = ctx.header
        ctx.request = yield from messages.decode_large_request(header.api_key, header.api_version, body)
        answer = handle(self._node, ctx, ctx.request)
        if answer is None or isinstance(answer, Awaitable):
            return answer
        fields = answer if isinstance(answer, Mapping) else (yield from answer)
        if isinstance(fields, Awaitable):
            return fields
        if fields is not None:
            ctx.respond_fields(**fields)
        return None

    def fail(self, ctx: RequestContext, body: memoryview, error: KafkaError) -> None:
        """Answer with an error instead of running the handler: for each partition, if only partitions have error
        codes."""
        from milena.node.rules.rule_partitions import refusal

        try:
            if ctx.request is None:
                ctx.request = messages.decode_request(ctx.header.api_key, ctx.header.api_version, body)
        except DecodeError as undecodable:
            ctx.disconnect(f"undecodable request body: {undecodable}")
            return
        fields = refusal(ctx.header.api_key, ctx.request, error.code)
        if fields is not None:
            ctx.respond_fields(**fields)
        else:
            self._refuse(ctx, error)

    def _refuse(self, ctx: RequestContext, error: Exception) -> None:
        """Answer with the error's code. Any other exception than KafkaError is a bug: it is logged, and this request is
        answered with UNKNOWN_SERVER_ERROR."""
        if not isinstance(error, KafkaError):
            self.runtime.contained.note(f"request {ctx.api.name}", error, version=ctx.version)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if ctx.closed or ctx.answered:
            return
        ctx.is_large = (
            False  # encode the error at once: if encoding fails cooperatively, this method would be called again
        )
        try:
            self._respond_error(ctx, error)
        except Exception as further:
            self.runtime.contained.note(f"the error of {ctx.api.name}", further, version=ctx.version)
            ctx.lost()

    def _respond_error(self, ctx: RequestContext, error: KafkaError) -> None:
        """Send the response that the module builds for ``error``, or one with the error at its top level. If the
        response has no field for it, close the connection."""
        if ctx.api.failed is not None:
            ctx.respond_fields(**ctx.api.failed(ctx, ctx.request, error))
            return
        header = ctx.header
        fields = {
            name: value
            for name, value in (("error_code", int(error.code)), ("error_message", error.text))
            if messages.response_has(header.api_key, header.api_version, name)
        }
        if "error_code" not in fields:
            ctx.disconnect(f"{error.code.name} cannot be expressed in the response")
            return
        ctx.respond_fields(**fields)


def _answered(ctx: RequestContext, work: Cooperative[Fields | Pending]) -> Cooperative[Pending]:
    """Run ``work``, then answer with the fields that it returns, unless it returns an awaitable of them."""
    fields = yield from work
    if isinstance(fields, Awaitable):
        return fields
    if fields is not None:
        ctx.respond_fields(**fields)
    return None


def api_name(key: int) -> str:
    """Kafka's name of an API in its metrics: ``Produce``, ``ListOffsets``."""
    return ApiKey(key).name.title().replace("_", "")
