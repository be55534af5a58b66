"""A broker with a slow processor divides long work into many iterations of the loop, so that heartbeats are in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.broker.groups.model import CommittedOffset
from milena.broker.server import Broker
from milena.form import running
from milena.lab.cluster import start_cluster
from milena.lab.world.world import Machine, World, simulate
from milena.protocol.errors import KafkaError
from milena.protocol.types import OFFSETS_TOPIC, NodeId
from tests.simulation.counted_work import Work

PARTITIONS = 4
RECORDS = 500
LINE = 15e-6
"""Seconds for a line of Python: many times the real time, so that a small log takes as long as a large one."""
SESSION = 9.0


class SlowProcessor:
    """Makes lines of Python take virtual time: the machine is paused after each iteration for the time of its lines."""

    def __init__(self, world: World, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work = Work()
        self.longest = 0.0
        """The seconds of the longest iteration so far."""
        self._loop = world.loop
        self._machine = machine
        self._busy_until = 0.0
        run: Any = asyncio.Handle._run

        def charged(handle: asyncio.Handle) -> None:
            before = self.work.lines
            run(handle)
            if handle._callback != self._resume_when_idle:  # type: ignore[attr-defined]
                self._charge((self.work.lines - before) * LINE)

        monkeypatch.setattr(asyncio.Handle, "_run", charged)

    def _charge(self, seconds: float) -> None:
        if not seconds:
            return
        self.longest = max(self.longest, seconds)
        was_idle = self._busy_until <= self._loop.time()
        self._busy_until = max(self._busy_until, self._loop.time()) + seconds
        if was_idle:
            self._loop.call_soon(self._machine.pause)  # callbacks that this one has scheduled run before
            self._loop.call_at(self._busy_until, self._resume_when_idle)

    def _resume_when_idle(self) -> None:
        if self._busy_until > self._loop.time():
            self._loop.call_at(self._busy_until, self._resume_when_idle)
        else:
            self._loop.call_soon(self._machine.resume)


@pytest.mark.skipif(running() == "compiled", reason="compiled code has no lines to count; `make test` runs it")
def test_a_broker_stays_unfenced_while_it_loads_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading in one step takes longer than a session. A broker that is fenced loses its leaderships, and loads the
    groups again when it is unfenced: it would never finish."""

    async def run(world: World) -> None:
        overrides = {"offsets_topic_num_partitions": PARTITIONS, "broker_session_timeout_ms": int(SESSION * 1000)}
        cluster = await start_cluster(world, 1, overrides)
        assert cluster.controller is not None
        names = await write_offsets(cluster.brokers[1])
        await cluster.kill("broker-1")
        broker = await cluster.start_broker(1)
        before, begun = leader_epochs(broker), world.loop.time()
        slow = SlowProcessor(world, world.machine("broker-1"), monkeypatch)
        with slow.work.counting():
            while not is_loaded(broker, names):
                await asyncio.sleep(0.5)
                assert not cluster.controller.state.image.brokers[NodeId(1)].fenced
        assert world.loop.time() - begun > SESSION, "or there was too little to do"
        assert leader_epochs(broker) == [epoch + 1 for epoch in before], "it was elected once"
        found = [len(broker.groups.shard(name).groups[name].offsets) for name in names]
        assert found == [RECORDS] * PARTITIONS
        assert slow.longest < SESSION / 4
        cluster.check_alive()

    simulate(run, seed=1)


async def write_offsets(broker: Broker) -> list[str]:
    """Fill each partition with the offsets of one group; return the names of the groups."""
    broker.auto_create.create_internal([OFFSETS_TOPIC])
    names: dict[object, str] = {}
    while len(names) < PARTITIONS:
        name = f"g{broker.runtime.random.below(1 << 30)}"
        try:
            names.setdefault(id(broker.groups.shard(name)), name)
        except KafkaError:
            await asyncio.sleep(0.1)
    for name in names.values():
        shard = broker.groups.shard(name)
        some = {("t", one): CommittedOffset(one, -1, "", 0) for one in range(RECORDS)}
        shard.commit(shard.get_or_create(name), some, lambda error: None)
    return list(names.values())


def is_loaded(broker: Broker, names: list[str]) -> bool:
    try:
        return all(broker.groups.shard(name) for name in names)
    except KafkaError:
        return False


def leader_epochs(broker: Broker) -> list[int]:
    return [one.leader_epoch for one in broker.image.topics[OFFSETS_TOPIC].partitions.values()]
