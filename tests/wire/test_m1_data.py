"""The data folder of M1, opened by real processes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.runtime.process import real_runtime
from milena.up.ports import free
from tests.fixtures.inventory import inventory
from tests.fixtures.m1 import LONG, manifest, unpack
from tests.wire.command import node
from tests.wire.properties import write


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Cluster]:
    """A client of the controller and the broker of an unpacked folder. Both shut down cleanly at the end."""
    address = f"127.0.0.1:{free('127.0.0.1', 1)[0]}"
    quorum = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"1000@{address}"}
    controller = quorum | {
        "process.roles": "controller",
        "node.id": "1000",
        "listeners": f"CONTROLLER://{address}",
        "log.dirs": f"{folder}/controller/data",
    }
    broker = quorum | {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": f"{folder}/broker-1/data-1,{folder}/broker-1/data-2",
    }
    places = folder / "controller", folder / "broker-1"
    with node(places[0], write(places[0], controller)), node(places[1], write(places[1], broker | LONG)) as running:
        host, _, port = running.address.rpartition(":")
        client = Cluster(real_runtime(), [(host, int(port))])
        yield client
        client.close()


async def test_all_data_of_m1_is_readable_and_remains_after_a_restart(tmp_path: Path) -> None:
    unpack(tmp_path)
    before = manifest()["inventory"]
    async with opened(tmp_path) as client:
        assert await inventory(client) == before
        producer = Producer(client)
        assert (await producer.send("trimmed", b"new")).offset == 150
        await producer.close()
        changed = await inventory(client)
    async with opened(tmp_path) as client:
        assert await inventory(client) == changed
    for topic in before["topics"]:
        assert (changed["topics"][topic] == before["topics"][topic]) == (topic != "trimmed")
