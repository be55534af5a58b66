"""Connections in the simulation when processes end, power fails and links are cut."""

from __future__ import annotations

import pytest

from lab.world import World, simulate
from runtime.context import Runtime
from tests.contract.peers import Peer


async def two_machines(world: World) -> tuple[Runtime, Peer, Peer]:
    """``one`` is connected to ``two``: the runtime of the first, and both ends."""
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


def test_a_machine_without_power_is_silent_until_it_is_back() -> None:
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


def test_what_was_sent_over_a_cut_link_arrives_when_it_is_healed() -> None:
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
