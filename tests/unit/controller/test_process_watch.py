"""A broker whose process has gone is fenced at once; one that lives never is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from milena.lab.world.world import World, simulate
from milena.node.framing import KafkaFramer
from milena.node.links.outgoing import Channel
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.frames import ReceiveBuffers
from milena.protocol.requests.memory_budget import MemoryBudget
from milena.runtime.context import Runtime
from milena.runtime.network import Connection, ConnectionHandler, Framer, Listener
from tests.unit.controller.cluster import CLUSTER_ID, directory, incarnation
from tests.unit.controller.simulated import HOST, PORT, RANGES, Site

BROKER, SESSION = "b", 9.0
ADDRESS = (BROKER, 9092)


class Deaf:
    """Takes a connection and says nothing."""

    def connection_made(self, connection: Connection) -> None:
        pass

    def frame_received(self, frame: memoryview) -> None:
        pass

    def writable(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        pass


@dataclass
class Process:
    """What the controller sees of a broker's process: its heartbeats, and who listens at its address."""

    site: Site
    runtime: Runtime
    run: int = 0
    epoch: int = -1
    channel: Channel = field(init=False)
    listener: Listener | None = None

    def __post_init__(self) -> None:
        self.channel = self.connect()

    def connect(self) -> Channel:
        return Channel(self.runtime, HOST, PORT, "broker-1")

    async def listen(self) -> None:
        def accept() -> tuple[Framer, ConnectionHandler]:
            return KafkaFramer(ReceiveBuffers(MemoryBudget(1 << 20, lambda: 0.0)), 1 << 20), Deaf()

        self.listener = await self.runtime.network.listen(*ADDRESS, accept)

    async def register(self, *, run: int = 0, port: int = ADDRESS[1], channel: Channel | None = None) -> ErrorCode:
        error, self.epoch = await self._register(channel or self.channel, 1, run, port)
        return error

    async def register_another(self) -> None:
        error, _ = await self._register(self.channel, 2, 0, ADDRESS[1] + 1)
        assert error is ErrorCode.NONE

    async def _register(self, channel: Channel, broker: int, run: int, port: int) -> tuple[ErrorCode, int]:
        answer = await channel.request(
            ApiKey.BROKER_REGISTRATION,
            broker_id=broker,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation(broker, run),
            listeners=[{"name": "PLAINTEXT", "host": BROKER, "port": port, "security_protocol": 0}],
            features=RANGES,
            log_dirs=[directory(broker)],
        )
        return ErrorCode(answer.error_code), answer.broker_epoch

    async def beat(self, *, want_fence: bool = False) -> None:
        answer = await self.channel.request(
            ApiKey.BROKER_HEARTBEAT,
            broker_id=1,
            broker_epoch=self.epoch,
            current_metadata_offset=2**62,
            want_fence=want_fence,
        )
        assert answer.error_code == 0
        await asyncio.sleep(0.1)  # the controller looks at the listener meanwhile

    async def begin(self) -> None:
        await self.listen()
        assert await self.register() is ErrorCode.NONE
        await self.beat()

    def stop_listening(self) -> None:
        assert self.listener is not None
        self.listener.close()

    def die(self) -> None:
        self.stop_listening()
        self.channel.close()

    def fenced(self) -> bool:
        return self.site.controller.state.image.brokers[1].fenced


def watching(steps: Callable[[Process], Awaitable[None]], *, seed: int = 1, **config: Any) -> None:
    async def run(world: World) -> None:
        site = await Site.start(world, **config)
        await steps(Process(site, world.machine(BROKER).start()))
        assert world.machine(HOST).failures == []

    simulate(run, seed=seed)


def test_a_process_that_has_gone_is_fenced_well_within_a_second_and_may_register_at_once() -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        process.die()
        await asyncio.sleep(0.2)
        assert process.fenced()
        assert await process.register(run=1, port=9999, channel=process.connect()) is ErrorCode.NONE

    watching(steps)


def test_listeners_that_close_after_the_connection_are_found_closed() -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        process.channel.close()
        await asyncio.sleep(0.1)
        assert not process.fenced()
        process.stop_listening()
        await asyncio.sleep(0.9)
        assert process.fenced()

    watching(steps)


@pytest.mark.parametrize(("listens", "others"), [(True, True), (False, True), (False, False)])
def test_the_log_names_a_broker_that_other_brokers_cannot_reach_once(listens: bool, others: bool) -> None:
    async def steps(process: Process) -> None:
        if listens:
            await process.listen()
        await process.register()
        with capture_logs() as lines:
            await process.beat()
            await process.beat()
            if others:
                await process.register_another()
            await process.beat()
            await process.beat()
        found = [
            (line["broker"], line["advertised"])
            for line in lines
            if "broker unreachable at its advertised addresses" in line["event"]
        ]
        assert found == ([(1, ["PLAINTEXT://b:9092"])] if others and not listens else [])

    watching(steps)


def test_it_can_be_switched_off() -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        process.die()
        await asyncio.sleep(SESSION - 1)
        assert not process.fenced()
        assert await process.register(run=1, channel=process.connect()) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await asyncio.sleep(3)
        assert process.fenced()

    watching(steps, broker_connection_loss_fencing_enable="false")


async def _reconnects(process: Process) -> None:
    """The heartbeats continue over another connection; the first closes later, and no process listens."""
    former = process.channel
    process.channel = process.connect()
    await process.beat()
    former.close()
    process.stop_listening()


async def _reconnects_late(process: Process) -> None:
    """As when a connection was idle for too long: the listener is there, the heartbeats come back."""
    process.channel.close()
    await asyncio.sleep(2)
    process.channel = process.connect()
    await process.beat()


async def _is_cut_off(process: Process) -> None:
    """It is unknown whether the process runs."""
    process.site.world.fabric.cut(HOST, BROKER)
    process.die()


@pytest.mark.parametrize("event", [_reconnects, _reconnects_late, _is_cut_off])
def test_what_may_live_is_left_to_its_session(event: Callable[[Process], Awaitable[None]]) -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        await event(process)
        await asyncio.sleep(3)
        assert not process.fenced()

    watching(steps)


def test_an_address_that_could_never_be_reached_proves_nothing() -> None:
    """As the advertised ``localhost`` of a broker in a container: refused, and the broker lives."""

    async def steps(process: Process) -> None:
        assert await process.register() is ErrorCode.NONE
        await process.beat()
        process.channel.close()
        await asyncio.sleep(SESSION - 1)
        assert not process.fenced()

    watching(steps)


def test_a_broker_that_is_fenced_or_of_a_former_epoch_is_not_looked_at() -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        former = process.channel
        offset = process.site.controller.state.next_offset
        await process.beat(want_fence=True)
        assert process.fenced()
        process.die()
        await asyncio.sleep(SESSION + 2)
        process.channel = process.connect()
        assert await process.register(run=1) is ErrorCode.NONE
        await process.listen()
        await process.beat()
        former.close()
        await asyncio.sleep(1)
        assert not process.fenced()
        assert process.epoch > offset

    watching(steps)


def test_a_successor_on_the_same_address_need_not_wait_for_the_session() -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        process.channel.close()  # the process has been replaced, and its successor listens already
        await asyncio.sleep(0.01)
        process.channel = process.connect()
        assert await process.register(run=1) is ErrorCode.NONE

    watching(steps)


@pytest.mark.parametrize("case", ["still connected", "another port", "another host"])
def test_a_second_process_under_the_same_id_is_refused(case: str) -> None:
    async def steps(process: Process) -> None:
        await process.begin()
        other = process.connect()
        port = 9092
        if case == "another host":
            other = Channel(process.site.client, HOST, PORT, "broker-1")
        if case == "another port":
            port = 9999
        if case != "still connected":
            process.channel.close()
            await asyncio.sleep(0.01)
        former = process.epoch
        assert await process.register(run=1, port=port, channel=other) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert process.site.controller.state.image.brokers[1].epoch == former

    watching(steps)
