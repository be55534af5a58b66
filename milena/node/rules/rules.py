"""Rules that intercept requests: they hold, delay, drop, duplicate or refuse a request, or close its connection.

A rule is applied to a request before its handler runs (side ``request``), or to its answer before the answer is sent
(side ``response``). Without rules a server checks only one flag.

While a request is held or delayed, later requests of its connection wait, as if they had not arrived. On release the
request is handled even if its connection has been closed. A dropped request has no effect, and its slot in the queue of
answers stays empty: later requests of the connection take effect, but their answers are not sent. If an answer is held,
its request has taken effect.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.node.api import Answers, RefusedPartitions, RequestContext
from milena.node.rules.answers_decorator import AnswersDecorator
from milena.node.rules.tracing import Exchanges, TracedAnswers, new_trace
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.schemas.registry import Role
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

if TYPE_CHECKING:
    from milena.node.rules.rule_topics import SessionPartitions
    from milena.runtime.network import Part


class RequestDispatcher(Protocol):
    """Runs requests, or answers them with an error."""

    @property
    def role(self) -> Role: ...
    def run(self, ctx: RequestContext, body: memoryview) -> None: ...
    def fail(self, ctx: RequestContext, body: memoryview, error: KafkaError) -> None: ...


class RuleAction(enum.Enum):
    """The action of a rule on matching requests. The values are the names of the lab commands."""

    HOLD = "hold"
    DELAY = "delay"
    DROP = "drop"
    DISCONNECT = "disconnect"
    FAIL = "fail"
    DUPLICATE = "duplicate"
    """The request is handled twice, and the second answer is sent."""
    TRACE = "trace"
    """The request and its answer are recorded; later rules still apply."""


class Side(enum.Enum):
    """Whether a rule applies before the handler or after it."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """Matches requests. A field that is None matches any request.

    ``peer`` is a node's id or a prefix of a client id, ``node`` only a node's id, ``client_id`` a whole client id.
    ``topic`` and ``partition``, ``group`` and ``transactional_id`` match what the request names. An incremental Fetch
    names only the changed partitions of its session; FAIL also matches the other partitions of the session. The rule
    applies to every n-th matching request (``every``), to each of these with a ``probability``, and to at most
    ``count`` requests.
    """

    action: RuleAction
    api: ApiKey | None = None
    peer: str | None = None
    client_id: str | None = None
    node: int | None = None
    listener: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    every: int | None = None
    probability: float | None = None
    seed: int | None = None
    random: Randomness | None = None
    """Decides about ``probability``; None: the node's."""
    count: int | None = None
    side: Side = Side.REQUEST
    seconds: float = 0.0
    """The delay of DELAY."""
    error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    """The error of FAIL."""
    number: int = 0
    matched: int = 0
    """The number of matched requests; some of them may not be answered yet."""
    hits: int = 0
    """The number of requests or answers to which the rule was applied."""
    candidates: int = 0
    """The number of requests before ``every`` and ``probability`` are considered."""
    held: dict[RequestContext, Callable[[], None]] = field(default_factory=dict)
    """Held requests, in order, each with the callback that continues it."""
    exchanges: Exchanges = field(default_factory=new_trace)
    """The exchanges recorded by TRACE."""

    def matches(
        self,
        ctx: RequestContext,
        body: memoryview,
        name_of: Callable[[UUID], str | None],
        random: Randomness | None,
        session: SessionPartitions | None,
    ) -> bool:
        """Whether the rule applies to a request. Call once per request, since ``every`` counts the calls."""
        if not self._matches_fields(ctx, body, name_of, session):
            return False
        if self.every is not None:
            self.candidates += 1
            if self.candidates % self.every:
                return False
        if self.probability is None:
            return True
        drawn_by = self.random or random
        assert drawn_by is not None, "a probability needs randomness"
        return drawn_by.uniform(0.0, 1.0) < self.probability

    def _matches_fields(
        self,
        ctx: RequestContext,
        body: memoryview,
        name_of: Callable[[UUID], str | None],
        session: SessionPartitions | None,
    ) -> bool:
        header = ctx.header
        if (
            (self.count is not None and self.matched >= self.count)
            or (self.api is not None and self.api != header.api_key)
            or (self.peer is not None and not is_peer(self.peer, header.client_id))
            or (self.client_id is not None and self.client_id != header.client_id)
            or (self.node is not None and not is_peer(str(self.node), header.client_id))
            or (self.listener is not None and self.listener != ctx.listener_name)
        ):
            return False
        if self.topic is self.group is self.transactional_id is None:
            return True
        from milena.node.rules.rule_topics import request_names

        return request_names(
            header.api_key,
            header.api_version,
            body,
            name_of,
            topic=self.topic,
            partition=self.partition,
            group=self.group,
            transactional_id=self.transactional_id,
            session=session if self.action is RuleAction.FAIL else None,
        )

    def describe(self) -> dict[str, object]:
        """Return the rule as the lab command ``rules`` shows it; fields that are None are omitted."""
        fields = {
            "rule": self.number,
            "command": self.action.value,
            "side": self.side.value,
            "api": None if self.api is None else self.api.name,
            "peer": self.peer,
            "client_id": self.client_id,
            "node": self.node,
            "listener": self.listener,
            "topic": self.topic,
            "partition": self.partition,
            "group": self.group,
            "transactional_id": self.transactional_id,
            "every": self.every,
            "probability": self.probability,
            "seed": self.seed,
            "count": self.count,
            "ms": round(self.seconds * 1000) if self.action is RuleAction.DELAY else None,
            "error": self.error.name if self.action is RuleAction.FAIL else None,
        }
        held = [{"api": ctx.api.name, "client_id": ctx.client_id, "gone": ctx.closed} for ctx in self.held]
        return {key: value for key, value in fields.items() if value is not None} | {"hits": self.hits, "held": held}


def is_peer(peer: str, client_id: str | None) -> bool:
    """Whether a client id is that of a node (if ``peer`` is a number), or begins with ``peer``.

    The client ids of a node's connections are ``broker-<id>-to-controller...``, ``broker-<id>-fetcher-...``,
    ``raft-client-<id>`` and, from Apache Kafka to its controller, ``<id>``.
    """
    if client_id is None:
        return False
    if not peer.isdecimal():
        return client_id.startswith(peer)
    return client_id in (peer, f"raft-client-{peer}") or client_id.startswith(f"broker-{peer}-")


class InterceptedAnswers(AnswersDecorator):
    """Intercepts the answer of a request for a rule of side RESPONSE."""

    __slots__ = ("_body", "_dispatcher", "_rule", "_rules")

    def __init__(
        self, rules: Rules, rule: Rule, answers: Answers, dispatcher: RequestDispatcher, body: memoryview
    ) -> None:
        self._rules = rules
        self._rule = rule
        super().__init__(answers)
        self._dispatcher = dispatcher
        self._body = bytes(body) if rule.action is RuleAction.FAIL else b""

    def answered(self, ctx: RequestContext) -> None:
        parts, ctx.parts = ctx.parts, None
        assert parts is not None
        ctx.answers = self._answers
        self._rules.answered(self._rule, ctx, self._dispatcher, self._body, parts)


class DiscardedAnswers(AnswersDecorator):
    """Discards the answer of a request, or the end of its connection, and calls ``then``."""

    __slots__ = ("_then",)

    def __init__(self, answers: Answers, then: Callable[[], object]) -> None:
        super().__init__(answers)
        self._then = then

    def answered(self, ctx: RequestContext) -> None:
        self._then()

    def hold(self, ctx: RequestContext) -> None:
        """Do nothing: the request that is handled second waits, and with it the later ones."""

    def release(self, ctx: RequestContext) -> None:
        """Do nothing."""

    def close(self, reason: str) -> None:
        self._then()


class Rules:
    """The rules of one node; the first match applies.

    Not thread-safe: used only on the event loop. ``name_of`` returns the name of a topic id, ``random`` is for rules
    with a probability, ``session`` returns the partitions of a fetch session.
    """

    def __init__(
        self,
        clock: Clock,
        name_of: Callable[[UUID], str | None] = lambda _: None,
        random: Randomness | None = None,
        session: SessionPartitions | None = None,
    ) -> None:
        self.active = False
        self._session = session
        self._random = random
        self._name_of = name_of
        self._clock = clock
        self._rules: dict[int, Rule] = {}
        self._next = 1
        self._hit = asyncio.Event()

    def add(self, rule: Rule) -> int:
        """Add a rule. Returns its number."""
        rule.number = self._next
        self._next += 1
        self._rules[rule.number] = rule
        self.active = True
        return rule.number

    def get(self, number: int) -> Rule:
        """Return a rule. Raises LookupError if it was released or never existed."""
        rule = self._rules.get(number)
        if rule is None:
            raise LookupError(f"there is no rule {number}")
        return rule

    def all(self) -> list[Rule]:
        return list(self._rules.values())

    def release(self, number: int) -> Rule:
        """Remove a rule and continue the requests that it holds, in order. Raises LookupError."""
        rule = self.get(number)
        del self._rules[number]
        self.active = bool(self._rules)
        while rule.held:
            self._release_request(rule, next(iter(rule.held)))
        return rule

    def release_first(self, number: int, count: int) -> int:
        """Continue the first ``count`` requests that a rule holds, and keep the rule. Returns how many there were.
        Raises LookupError."""
        rule = self.get(number)
        first = list(islice(rule.held, count))
        for ctx in first:
            self._release_request(rule, ctx)
        return len(first)

    def disconnect_held(self, reason: str) -> None:
        """Close the connections of the held requests, which are not handled."""
        for rule in self._rules.values():
            held = list(rule.held)
            rule.held.clear()
            for ctx in held:
                ctx.disconnect(reason)

    def stop(self) -> None:
        """Remove all rules and drop the held requests: the node stops."""
        for rule in self._rules.values():
            rule.held.clear()
        self._rules.clear()
        self.active = False

    async def wait(self, number: int, hits: int, seconds: float) -> Rule:
        """Wait until a rule has this many hits. Raises LookupError if the rule does not exist or is released before
        that, TimeoutError after ``seconds``."""
        async with asyncio.timeout(seconds):
            while (rule := self.get(number)).hits < hits:
                self._hit.clear()
                await self._hit.wait()
        return rule

    def intercepts(self, ctx: RequestContext, body: memoryview, dispatcher: RequestDispatcher) -> bool:
        """Apply the first rule that matches. Returns False if the caller must run the request now.

        ``body`` is copied if it is needed later."""
        for rule in self._rules.values():
            if not rule.matches(ctx, body, self._name_of, self._random, self._session):
                continue
            rule.matched += 1
            if rule.action is RuleAction.TRACE:
                rule.hits += 1
                self._hit.set()
                ctx.answers = TracedAnswers(self._clock, rule.exchanges, ctx.answers, body)
                continue  # tracing does not change the request: later rules apply, too
            if rule.side is Side.RESPONSE:
                ctx.answers = InterceptedAnswers(self, rule, ctx.answers, dispatcher, body)
                if rule.action is RuleAction.FAIL:
                    self._refuse_in_handler(rule, ctx, dispatcher, handled=True)
                return False
            self._apply(rule, ctx, dispatcher, body, lambda data: dispatcher.run(ctx, data))
            return True
        return False

    def answered(
        self, rule: Rule, ctx: RequestContext, dispatcher: RequestDispatcher, body: bytes, answer: list[Part]
    ) -> None:
        """Apply a rule of side RESPONSE to the answer of a request that it has matched."""
        if rule.number in self._rules:
            self._apply(rule, ctx, dispatcher, memoryview(bytearray(body)), lambda _: ctx.set_response(answer))
        else:
            ctx.set_response(answer)

    def blocks(self, ctx: RequestContext) -> bool:
        """Whether a rule holds the request, so that later requests of its connection must wait."""
        return any(ctx in rule.held for rule in self._rules.values())

    def _apply(
        self,
        rule: Rule,
        ctx: RequestContext,
        dispatcher: RequestDispatcher,
        body: memoryview,
        proceed: Callable[[memoryview], None],
    ) -> None:
        """Apply a rule's action. ``proceed`` handles the request, or sends the answer, as without the rule."""
        rule.hits += 1
        self._hit.set()
        match rule.action:
            case RuleAction.HOLD | RuleAction.DELAY:
                copied = memoryview(bytearray(body))
                rule.held[ctx] = lambda: proceed(copied)
                if rule.action is RuleAction.DELAY:
                    self._clock.call_later(rule.seconds, lambda: self._release_request(rule, ctx))
            case RuleAction.DUPLICATE:
                self._duplicate(rule, ctx, dispatcher, memoryview(bytearray(body)))
            case RuleAction.DISCONNECT:
                ctx.disconnect("a rule cut the connection")
            case RuleAction.FAIL:
                self._refuse(rule, ctx, dispatcher, body, proceed)
            case RuleAction.DROP | RuleAction.TRACE:
                pass  # DROP: the slot of the request stays unanswered. TRACE is applied by ``intercepts``.

    def _duplicate(self, rule: Rule, ctx: RequestContext, dispatcher: RequestDispatcher, body: memoryview) -> None:
        """Handle a copy of the request, and the request itself once the copy has been answered; until then it is held.
        A handler may change the body, so each gets its own."""
        rule.held[ctx] = lambda: dispatcher.run(ctx, body)
        # Not in the call that answers the copy: the connection must see first that the request is held.
        again = lambda: self._clock.call_later(0, lambda: self._release_request(rule, ctx))  # noqa: E731
        answers = DiscardedAnswers(ctx.answers, again)
        copy = RequestContext(ctx.header, ctx.api, ctx.caller, answers, ctx.received_at)
        dispatcher.run(copy, memoryview(bytearray(body)))

    def _refuse(
        self,
        rule: Rule,
        ctx: RequestContext,
        dispatcher: RequestDispatcher,
        body: memoryview,
        proceed: Callable[[memoryview], None],
    ) -> None:
        """Answer with the rule's error. If the rule is for a topic, the request's other partitions are handled."""
        if self._refuse_in_handler(rule, ctx, dispatcher, handled=False):
            proceed(body)
            return
        if rule.topic is not None:
            from milena.node.rules.rule_partitions import PartlyRefusedAnswers, split

            header = ctx.header
            request = messages.decode_request(header.api_key, header.api_version, body)
            parts = split(header.api_key, request, rule.topic, rule.partition, self._name_of)
            if parts is not None:
                remaining, refused = parts
                ctx.answers = PartlyRefusedAnswers(ctx.answers, refused, rule.error)
                proceed(memoryview(bytearray(messages.encode(remaining))))
                return
        dispatcher.fail(ctx, body, KafkaError(rule.error, "a rule has refused this request"))

    def _refuse_in_handler(
        self, rule: Rule, ctx: RequestContext, dispatcher: RequestDispatcher, *, handled: bool
    ) -> bool:
        """Set the partitions that the handler refuses. Returns False if the handler does not support that for this
        request."""
        header = ctx.header
        if not is_refused_by_handler(dispatcher.role, header.api_key, header.api_version, rule.topic):
            return False
        if ctx.refused is None:
            number = rule.number
            ctx.refused = refused(
                rule.topic, rule.partition, rule.error, handled=handled, is_over=lambda: number not in self._rules
            )
        return True

    def _release_request(self, rule: Rule, ctx: RequestContext) -> None:
        proceed = rule.held.pop(ctx, None)
        if proceed is not None:
            proceed()


class Named(Protocol):
    """A topic with a name."""

    @property
    def name(self) -> str: ...


def uuid_namer(topics: Callable[[], Mapping[UUID, Named]]) -> Callable[[UUID], str | None]:
    """Return a function that looks up the names of topic ids in ``topics()``, an image's ``topics_by_id``."""

    def name_of(topic_id: UUID) -> str | None:
        topic = topics().get(topic_id)
        return None if topic is None else str(topic.name)

    return name_of


ERROR_SINCE: Final = 7
"""The first version whose response has an error code for the whole request."""


def is_refused_by_handler(role: Role, key: int, version: int, topic: str | None) -> bool:
    """Whether the handler, not the dispatcher, refuses such a request for a rule with this ``topic`` (None: any
    topic)."""
    return role is Role.BROKER and key == ApiKey.FETCH and (topic is not None or version < ERROR_SINCE)


def refused(
    topic: str | None, partition: int | None, error: ErrorCode, *, handled: bool, is_over: Callable[[], bool]
) -> RefusedPartitions:
    """Return the partitions that a rule refuses: all if ``topic`` is None. If ``is_over`` returns True when the answer
    is made, because the rule has been released, the answer is not changed."""

    def error_of(name: str | None, index: int) -> ErrorCode:
        matches = topic is None or (name == topic and partition in (None, index))
        return error if matches and not (handled and is_over()) else ErrorCode.NONE

    return RefusedPartitions(error_of, handled)
