"""When a fault counts as seen: a slow answer does not prove that a node hangs, has ended, or has a full disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from milena.client.cluster import Cluster, ClusterView
from milena.lab.chaos.faults import Kind, Shape, Step
from milena.lab.chaos.health import Health, Quorum, Reply
from milena.lab.chaos.nemesis import HEARTBEAT, MARGIN, deposed
from milena.lab.chaos.place import Place
from milena.lab.chaos.topics import PLAIN, WEAK
from milena.lab.chaos.watch import BEHIND, Sight, Watch, hears_nothing
from milena.lab.chaos.writable import Replicas
from milena.lab.histories.faults import Effect
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.context import Runtime

CONTROLLER = 100
SHAPE = Shape([1, 2, 3], CONTROLLER, session=3.0, lag=5.0)
LASTS = 4.0
Says = Callable[[float], Reply]
"""The reply of a node to a request at a given time; ``SILENT`` uses up the time limit of the request."""


class Nodes:
    """A fake of Place and Health: nodes with given replies."""

    def __init__(self, runtime: Runtime, says: Mapping[int, Says]) -> None:
        self.runtime = runtime
        self._says = says
        self._begun = runtime.clock.monotonic()
        self.quorums: Callable[[float], Quorum | None] = lambda _: None
        self.moves_from = math.inf

    @property
    def now(self) -> float:
        return self.runtime.clock.monotonic() - self._begun

    async def address(self, node: int) -> tuple[str, int]:
        return "", node

    async def reply(self, address: tuple[str, int], seconds: float) -> Reply:
        reply = self._says.get(address[1], answers)(self.now)
        await self.runtime.clock.sleep(seconds if reply is Reply.SILENT else 0.01)
        return reply

    async def has_offline_directory(self, address: tuple[str, int], seconds: float) -> bool:
        return await self.reply(address, seconds) is Reply.GONE

    async def quorum(self, address: tuple[str, int], seconds: float) -> Quorum | None:
        return self.quorums(self.now)

    async def reassigns(self, address: tuple[str, int], seconds: float) -> bool:
        return self.now >= self.moves_from

    async def views(self) -> Sequence[ClusterView | None]:
        return []


def answers(_: float) -> Reply:
    return Reply.ANSWERED


def silent(_: float) -> Reply:
    return Reply.SILENT


def gone(_: float) -> Reply:
    return Reply.GONE


def slow(now: float) -> Reply:
    """The node answers after its third second."""
    return Reply.SILENT if now < 3.0 else Reply.ANSWERED


def effect(kind: Kind, says: Mapping[int, Says], seconds: float = LASTS) -> Effect | None:
    async def play(world: World) -> Effect | None:
        runtime = world.machine("client").start()
        nodes = Nodes(runtime, says)
        watch = Watch(cast(Place, nodes), cast(Health, nodes), SHAPE)
        async with watch.over(Step(kind, (1,), seconds), []) as sight:
            if kind in (Kind.STOP, Kind.HANG):
                async with watch.silence(sight):
                    await runtime.clock.sleep(seconds)
            else:
                await runtime.clock.sleep(seconds)
        return sight.effect

    return simulate(play, seed=1)


@pytest.mark.parametrize("kind", [Kind.STOP, Kind.HANG])
@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({1: silent}, Effect.SEEN),
        ({1: silent, 2: gone, 3: silent}, Effect.SEEN),
        ({1: slow}, Effect.NOT_SEEN),
        ({1: answers}, Effect.NOT_SEEN),
        ({1: gone}, Effect.NOT_SEEN),
        (dict.fromkeys((1, 2, 3, CONTROLLER), silent), Effect.NOT_SEEN),
    ],
)
def test_a_node_hangs_if_it_never_answers_while_another_node_does(
    kind: Kind, says: Mapping[int, Says], expected: Effect
) -> None:
    assert effect(kind, says) is expected


@pytest.mark.parametrize("kind", [Kind.KILL, Kind.RESTART, Kind.CONTROLLER, Kind.FULL_DISK])
@pytest.mark.parametrize(
    ("says", "expected"), [(gone, Effect.SEEN), (slow, Effect.NOT_SEEN), (silent, Effect.NOT_SEEN)]
)
def test_a_node_has_ended_if_it_refuses_connections(kind: Kind, says: Says, expected: Effect) -> None:
    assert effect(kind, {1: says}) is expected


@pytest.mark.parametrize(("moves_from", "expected"), [(1.0, Effect.SEEN), (LASTS + 1.0, Effect.NOT_SEEN)])
def test_a_reassignment_is_seen_while_it_is_in_progress_although_it_never_completes(
    moves_from: float, expected: Effect
) -> None:
    """One of the target replicas is down until the reassignment is reverted."""

    async def play(world: World) -> Effect | None:
        runtime = world.machine("client").start()
        nodes = Nodes(runtime, {})
        nodes.moves_from = moves_from
        watch = Watch(cast(Place, nodes), cast(Health, nodes), SHAPE)
        async with watch.over(Step(Kind.REASSIGN, (), LASTS), [Step(Kind.RESTART, (3,), LASTS)]) as sight:
            await runtime.clock.sleep(LASTS)
        return sight.effect

    assert simulate(play, seed=1) is expected


def test_a_broker_hears_nothing_if_it_lacks_metadata_that_other_brokers_have() -> None:
    assert hears_nothing(1, {1: 5, 2: 9, 3: 4}, 8)
    assert hears_nothing(1, {2: 9}, 8)
    assert not hears_nothing(1, {1: 8, 2: 9}, 8)
    assert not hears_nothing(1, {1: 5, 2: 7}, 8)
    assert not hears_nothing(1, {1: 5}, 8)


@pytest.mark.parametrize(("stuck", "expected"), [(True, Effect.SEEN), (False, Effect.NOT_SEEN)])
def test_a_cut_from_the_controller_to_a_broker_is_seen_in_the_brokers_metadata_offset(
    stuck: bool, expected: Effect
) -> None:
    """The broker's heartbeats arrive, so the controller does not fence it."""

    async def play(world: World) -> Sight:
        runtime = world.machine("client").start()
        nodes = Nodes(runtime, {})

        def quorum(now: float) -> Quorum:
            end = int(10 * now)
            return Quorum(end, {1: 0 if stuck else max(0, end - 5), 2: end, 3: end}, frozenset())

        nodes.quorums = quorum
        watch = Watch(cast(Place, nodes), cast(Health, nodes), SHAPE)
        async with watch.over(Step(Kind.CUT_ONE_WAY, (CONTROLLER, 1), LASTS), []) as sight:
            await runtime.clock.sleep(2 * BEHIND)
        return sight

    assert simulate(play, seed=1).effect is expected


class Client:
    """A cluster of one broker in which all requests have the same outcome."""

    def __init__(self, runtime: Runtime, outcome: object) -> None:
        self.runtime = runtime
        self._outcome = outcome

    def to(self, host: str, port: int) -> Client:
        return self

    async def request(self, *_: object, **__: object) -> object:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        if self._outcome is None:
            await self.runtime.clock.sleep(60)
        return self._outcome


def directories(*errors: int) -> object:
    return SimpleNamespace(results=[SimpleNamespace(error_code=error) for error in errors])


@pytest.mark.parametrize(
    ("outcome", "reply", "is_offline"),
    [
        (directories(0, 56), Reply.ANSWERED, True),
        (directories(0, 0), Reply.ANSWERED, False),
        (None, Reply.SILENT, False),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "slow"), Reply.SILENT, False),
        (KafkaError(ErrorCode.UNSUPPORTED_VERSION, "old"), Reply.ANSWERED, False),
        (ChannelError("broken"), Reply.GONE, True),
    ],
)
def test_a_slow_answer_does_not_count_as_a_full_disk(outcome: object, reply: Reply, is_offline: bool) -> None:
    async def play(world: World) -> tuple[Reply, bool]:
        client = cast(Cluster, Client(world.machine("client").start(), outcome))
        health = Health(client, [1], [("", 1)], [])
        return await health.reply(("", 1), 1.0), await health.has_offline_directory(("", 1), 1.0)

    assert simulate(play, seed=1) == (reply, is_offline)


LED = WEAK.places[0]
AS_IT_WAS = {
    LED: Replicas(1, (1, 2, 3), 2),
    WEAK.places[1]: Replicas(2, (2, 1), 2),
    PLAIN.places[0]: Replicas(1, (1, 2), 2),
}


def isolated(*, carried_out: float = 10.5, others: list[Step] | None = None) -> tuple[object, float, float]:
    step = Step(Kind.ISOLATE, (1,), 5.0)
    sight = Sight(step, others or [], SHAPE)
    sight.carried_out = carried_out
    return deposed(sight, 10.0, [step, *(others or [])], AS_IT_WAS, SHAPE)


def test_writes_with_acks_1_to_an_isolated_leader_must_be_lost_until_its_session_may_end() -> None:
    until = 10.0 + SHAPE.session - HEARTBEAT - MARGIN
    assert isolated() == ((LED,), 10.5 + MARGIN, until)
    assert isolated(others=[Step(Kind.TIER_AWAY, (), 5.0)])[0] == (LED,)
    assert isolated(others=[Step(Kind.CONTROLLER, (CONTROLLER,), 5.0)])[0] == ()
    assert isolated(carried_out=until)[0] == ()
    kill = Step(Kind.KILL, (1,), 5.0)
    assert deposed(Sight(kill, [], SHAPE), 10.0, [kill], AS_IT_WAS, SHAPE).places == ()
