"""Connections of the simulation after killed processes, power losses and cut links."""

from __future__ import annotations

import asyncio

import pytest

from milena.lab.world.world import World, simulate
from milena.runtime.context import Runtime
from tests.contract.peers import Peer


async def two_machines(world: World) -> tuple[Runtime, Peer, Peer]:
    """Connects ``one`` to ``two``. Returns the runtime of ``one`` and both ends of the connection."""
    here, there = world.machine("one").start(), world.machine("two").start()
    client, server = Peer(), Peer()
    await there.network.listen("", 9092, lambda: (server.framer, server))
    await here.network.connect("two", 9092, client.framer, client, timeout=1)
    return here, client, server


def test_a_killed_process_ends_its_connections() -> None:
    async def scenario(world: World) -> None:
        here, client, server = await two_machines(world)
        world.machine("two").kill()
        await here.clock.sleep(0.1)
        assert client.lost == [None]
        assert server.lost == []
        with pytest.raises(ConnectionRefusedError):
            await here.network.connect("two", 9092, client.framer, client, timeout=1)

    simulate(scenario, seed=1)


def test_a_machine_without_power_is_silent_until_it_starts_again() -> None:
    async def scenario(world: World) -> None:
        here, client, _server = await two_machines(world)
        world.machine("two").power_off()
        client.connection.send([b"anybody there?\n"])
        await here.clock.sleep(60)
        assert client.lost == []
        started = here.clock.monotonic()
        with pytest.raises(TimeoutError):
            await here.network.connect("two", 9092, client.framer, client, timeout=5)
        assert here.clock.monotonic() - started == pytest.approx(5)
        world.machine("two").start()
        client.connection.send([b"and now?\n"])
        await here.clock.sleep(0.1)
        assert [type(error) for error in client.lost] == [ConnectionResetError]

    simulate(scenario, seed=1)


def test_data_sent_over_a_cut_link_arrives_when_the_link_is_healed() -> None:
    async def scenario(world: World) -> None:
        here, client, server = await two_machines(world)
        world.fabric.cut("two", "one")
        for frame in (b"1\n", b"2\n", b"3\n"):
            client.connection.send([frame])
            await here.clock.sleep(1)
        assert server.frames == []
        with pytest.raises(TimeoutError):
            await here.network.connect("two", 9092, client.framer, client, timeout=1)
        world.fabric.heal("one", "two")
        await here.clock.sleep(0.1)
        assert server.frames == [b"1", b"2", b"3"]

    simulate(scenario, seed=1)


def test_a_half_open_connection_carries_one_direction() -> None:
    async def scenario(world: World) -> None:
        here, client, server = await two_machines(world)
        world.fabric.cut("two", "one", one_way=True)
        client.connection.send([b"question\n"])
        server.connection.send([b"answer\n"])
        await here.clock.sleep(1)
        assert (server.frames, client.frames) == ([b"question"], [])
        with pytest.raises(TimeoutError):
            await here.network.connect("two", 9092, client.framer, client, timeout=5)
        world.fabric.heal("one", "two")
        await here.clock.sleep(1)
        assert client.frames == [b"answer"]

    simulate(scenario, seed=1)


def test_a_slow_link_is_slow_until_it_is_healed() -> None:
    async def scenario(world: World) -> None:
        here, client, server = await two_machines(world)
        world.fabric.slow("two", "one", 2)
        client.connection.send([b"1\n"])
        await here.clock.sleep(1.9)
        assert server.frames == []
        await here.clock.sleep(0.2)
        assert server.frames == [b"1"]
        world.fabric.heal("two", "one")
        client.connection.send([b"2\n"])
        await here.clock.sleep(0.1)
        assert server.frames == [b"1", b"2"]

    simulate(scenario, seed=1)


def test_a_paused_process_handles_its_input_and_timers_after_it_is_resumed() -> None:
    async def scenario(world: World) -> None:
        here, client, server = await two_machines(world)
        there = world.machine("two")
        fired_at: list[float] = []
        world.machine("one").pause()
        here.clock.call_later(1, lambda: fired_at.append(here.clock.monotonic()))
        server.connection.send([b"to the paused\n"])
        client.connection.send([b"by the paused\n"])
        await asyncio.sleep(5)
        assert (client.frames, server.frames, fired_at) == ([], [], [])
        world.machine("one").resume()
        await asyncio.sleep(0.1)
        assert (client.frames, server.frames) == ([b"to the paused"], [b"by the paused"])
        assert fired_at == [pytest.approx(5, abs=0.01)]
        assert there.alive

    simulate(scenario, seed=1)
