"""Rules that intercept requests: they hold, delay, drop or refuse a request, or close its connection.

A rule is applied when a whole request has arrived and its handler has not seen it (side ``request``), or when it was
handled and its answer has not been sent (side ``response``). Without rules a server checks only one flag.

While a request is held or delayed, later ones on its connection wait, like bytes that have not arrived; it is handled
on release even if its connection has ended meanwhile. A dropped request takes no effect, and its slot in the queue of
answers stays empty: later requests take effect, unanswered, until the peer gives up. The request of a held answer has
taken effect.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from milena.node.api import Answers, RequestContext
from milena.node.rules.fetch_refusals import is_left_to_handler, refused
from milena.node.rules.on_the_way import OnTheWay
from milena.node.rules.tracing import Exchanges, Traced, new_trace
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

if TYPE_CHECKING:
    from milena.node.rules.dispatching import Dispatching
    from milena.node.rules.rule_topics import SessionPartitions
    from milena.runtime.network import Part


class Effect(enum.Enum):
    """What a rule does with matching requests. The values are the names of the commands."""

    HOLD = "hold"
    DELAY = "delay"
    DROP = "drop"
    DISCONNECT = "disconnect"
    FAIL = "fail"
    TRACE = "trace"
    """The request and its answer are recorded; later rules still apply."""


class Side(enum.Enum):
    """Whether a rule applies before the handler or after it."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """Matches requests; a field that is None matches all.

    ``peer`` is a node's id or a prefix of a client id, ``node`` only a node's id. ``topic`` and ``partition``,
    ``group`` and ``transactional_id`` match what the request names: a Fetch in a session names only what has changed,
    but FAIL also knows the rest of the session. Of the matching requests every n-th (``every``) is caught, and of these
    each with a ``probability``. After ``count`` caught requests, later ones pass.
    """

    effect: Effect
    api: ApiKey | None = None
    peer: str | None = None
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    every: int | None = None
    probability: float | None = None
    count: int | None = None
    side: Side = Side.REQUEST
    seconds: float = 0.0
    """The delay of DELAY."""
    error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    """The error of FAIL."""
    number: int = 0
    taken: int = 0
    """Matches so far; some of them may not be answered yet."""
    hits: int = 0
    fitting: int = 0
    """Requests that ``every`` has counted."""
    held: dict[RequestContext, Callable[[], None]] = field(default_factory=dict)
    """Held requests, in order, each with the call that continues it."""
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
        """Call once per request, since ``every`` counts the calls."""
        if not self._fits(ctx, body, name_of, session):
            return False
        if self.every is not None:
            self.fitting += 1
            if self.fitting % self.every:
                return False
        if self.probability is None:
            return True
        assert random is not None, "a probability needs randomness"
        return random.uniform(0.0, 1.0) < self.probability

    def _fits(
        self,
        ctx: RequestContext,
        body: memoryview,
        name_of: Callable[[UUID], str | None],
        session: SessionPartitions | None,
    ) -> bool:
        header = ctx.header
        if (
            (self.count is not None and self.taken >= self.count)
            or (self.api is not None and self.api != header.api_key)
            or (self.peer is not None and not is_peer(self.peer, header.client_id))
            or (self.node is not None and not is_peer(str(self.node), header.client_id))
        ):
            return False
        if self.topic is self.group is self.transactional_id is None:
            return True
        from milena.node.rules.rule_topics import fits

        return fits(
            header.api_key,
            header.api_version,
            body,
            name_of,
            topic=self.topic,
            partition=self.partition,
            group=self.group,
            transactional_id=self.transactional_id,
            session=session if self.effect is Effect.FAIL else None,
        )

    def describe(self) -> dict[str, object]:
        """The rule as the command ``rules`` shows it."""
        said = {
            "rule": self.number,
            "command": self.effect.value,
            "side": self.side.value,
            "api": None if self.api is None else self.api.name,
            "peer": self.peer,
            "node": self.node,
            "topic": self.topic,
            "partition": self.partition,
            "group": self.group,
            "transactional_id": self.transactional_id,
            "every": self.every,
            "probability": self.probability,
            "count": self.count,
            "ms": round(self.seconds * 1000) if self.effect is Effect.DELAY else None,
            "error": self.error.name if self.effect is Effect.FAIL else None,
        }
        held = [{"api": ctx.api.name, "client_id": ctx.client_id, "gone": ctx.closed} for ctx in self.held]
        return {key: value for key, value in said.items() if value is not None} | {"hits": self.hits, "held": held}


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


class Withheld(OnTheWay):
    """Wraps the answers of a request, and lets a rule of side RESPONSE take them first."""

    __slots__ = ("_body", "_dispatcher", "_rule", "_rules")

    def __init__(self, rules: Rules, rule: Rule, answers: Answers, dispatcher: Dispatching, body: memoryview) -> None:
        self._rules = rules
        self._rule = rule
        super().__init__(answers)
        self._dispatcher = dispatcher
        self._body = bytes(body) if rule.effect is Effect.FAIL else b""

    def answered(self, ctx: RequestContext) -> None:
        parts, ctx.parts = ctx.parts, None
        assert parts is not None
        ctx.answers = self._answers
        self._rules.answered(self._rule, ctx, self._dispatcher, self._body, parts)


class Rules:
    """The rules of one node; the first match applies.

    To be used on the loop. ``name_of`` returns the name of a topic id, ``random`` is for rules with a probability,
    ``session`` returns the partitions of fetch sessions.
    """

    def __init__(
        self,
        clock: Clock | None = None,
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
        """Returns the rule's number."""
        assert rule.effect is not Effect.DELAY or self._clock is not None, "a delay needs a clock"
        rule.number = self._next
        self._next += 1
        self._rules[rule.number] = rule
        self.active = True
        return rule.number

    def get(self, number: int) -> Rule:
        """Raises LookupError if the rule has ended or never existed."""
        rule = self._rules.get(number)
        if rule is None:
            raise LookupError(f"there is no rule {number}")
        return rule

    def all(self) -> list[Rule]:
        return list(self._rules.values())

    def release(self, number: int) -> Rule:
        """End a rule and release what it holds, in order. Raises LookupError."""
        rule = self.get(number)
        del self._rules[number]
        self.active = bool(self._rules)
        while rule.held:
            self._let_go(rule, next(iter(rule.held)))
        return rule

    def stop(self) -> None:
        """The node stops: what is held is dropped."""
        for rule in self._rules.values():
            rule.held.clear()
        self._rules.clear()
        self.active = False

    async def wait(self, number: int, hits: int, seconds: float) -> Rule:
        """Wait until a rule has caught this many requests. Raises LookupError, also if the rule ends meanwhile;
        TimeoutError."""
        async with asyncio.timeout(seconds):
            while (rule := self.get(number)).hits < hits:
                self._hit.clear()
                await self._hit.wait()
        return rule

    def intercepts(self, ctx: RequestContext, body: memoryview, dispatcher: Dispatching) -> bool:
        """Apply the first rule that matches; False if the request is to be handled now.

        ``body`` is copied if it is needed later."""
        for rule in self._rules.values():
            if not rule.matches(ctx, body, self._name_of, self._random, self._session):
                continue
            rule.taken += 1
            if rule.effect is Effect.TRACE:
                rule.hits += 1
                self._hit.set()
                ctx.answers = Traced(rule.exchanges, ctx.answers, body)
                continue
            if rule.side is Side.RESPONSE:
                ctx.answers = Withheld(self, rule, ctx.answers, dispatcher, body)
                if rule.effect is Effect.FAIL:
                    self._left_to_handler(rule, ctx, dispatcher, handled=True)
                return False
            self._carry_out(rule, ctx, dispatcher, body, lambda data: dispatcher.run(ctx, data))
            return True
        return False

    def answered(
        self, rule: Rule, ctx: RequestContext, dispatcher: Dispatching, body: bytes, answer: list[Part]
    ) -> None:
        """A request that a rule of side RESPONSE has matched was answered."""
        if rule.number in self._rules:
            self._carry_out(rule, ctx, dispatcher, memoryview(bytearray(body)), lambda _: ctx.fill(answer))
        else:
            ctx.fill(answer)

    def blocks(self, ctx: RequestContext) -> bool:
        """Whether a request waits in a rule, and with it the later ones on its connection."""
        return any(ctx in rule.held for rule in self._rules.values())

    def _carry_out(
        self,
        rule: Rule,
        ctx: RequestContext,
        dispatcher: Dispatching,
        body: memoryview,
        go_on: Callable[[memoryview], None],
    ) -> None:
        """Apply a rule's action; ``go_on`` continues as without the rule."""
        rule.hits += 1
        self._hit.set()
        match rule.effect:
            case Effect.HOLD | Effect.DELAY:
                copied = memoryview(bytearray(body))
                rule.held[ctx] = lambda: go_on(copied)
                if rule.effect is Effect.DELAY:
                    assert self._clock is not None
                    self._clock.call_later(rule.seconds, lambda: self._let_go(rule, ctx))
            case Effect.DISCONNECT:
                ctx.disconnect("a rule cut the connection")
            case Effect.FAIL:
                self._refuse(rule, ctx, dispatcher, body, go_on)
            case Effect.DROP | Effect.TRACE:
                pass

    def _refuse(
        self,
        rule: Rule,
        ctx: RequestContext,
        dispatcher: Dispatching,
        body: memoryview,
        go_on: Callable[[memoryview], None],
    ) -> None:
        """Answer with the rule's error. If the rule is for a topic, the request's other partitions are handled."""
        if self._left_to_handler(rule, ctx, dispatcher, handled=False):
            go_on(body)
            return
        if rule.topic is not None:
            from milena.node.rules.rule_partitions import PartlyRefused, split

            header = ctx.header
            request = messages.decode_request(header.api_key, header.api_version, body)
            parts = split(header.api_key, request, rule.topic, rule.partition, self._name_of)
            if parts is not None:
                left, refused = parts
                ctx.answers = PartlyRefused(ctx.answers, refused, rule.error)
                go_on(memoryview(bytearray(messages.encode(left))))
                return
        dispatcher.fail(ctx, body, KafkaError(rule.error, "a rule has refused this request"))

    def _left_to_handler(self, rule: Rule, ctx: RequestContext, dispatcher: Dispatching, *, handled: bool) -> bool:
        """Tell the handler which partitions to refuse, if it supports that."""
        header = ctx.header
        if not is_left_to_handler(dispatcher.role, header.api_key, header.api_version, rule.topic):
            return False
        if ctx.refused is None:
            number = rule.number
            ctx.refused = refused(
                rule.topic, rule.partition, rule.error, handled=handled, is_over=lambda: number not in self._rules
            )
        return True

    def _let_go(self, rule: Rule, ctx: RequestContext) -> None:
        go_on = rule.held.pop(ctx, None)
        if go_on is not None:
            go_on()


class Named(Protocol):
    """A topic with a name."""

    @property
    def name(self) -> str: ...


def uuid_namer(topics: Callable[[], Mapping[UUID, Named]]) -> Callable[[UUID], str | None]:
    """Names of topic ids from an image's ``topics_by_id``."""

    def name_of(topic_id: UUID) -> str | None:
        topic = topics().get(topic_id)
        return None if topic is None else str(topic.name)

    return name_of
