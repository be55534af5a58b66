"""The data folder of M1 under real processes on this machine's files."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from milena.up import ports
from node.client.cluster import Cluster
from node.client.producer import Producer
from runtime.process import real_runtime
from tests.fixtures.inventory import inventory
from tests.fixtures.m1 import LONG, manifest, unpack

CONTROLLER_ID = 1000


class Nodes:
    """`milena node` on an unpacked folder: the controller, then the broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []

    def start(self) -> tuple[str, int]:
        """Returns the broker's address."""
        address = f"127.0.0.1:{ports.free('127.0.0.1', 1)[0]}"
        quorum = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{address}",
        }
        controller = quorum | {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "listeners": f"CONTROLLER://{address}",
            "log.dirs": f"{self._folder}/controller/data",
        }
        self._run("controller", controller)
        broker = quorum | {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": f"{self._folder}/broker-1/data-1,{self._folder}/broker-1/data-2",
        }
        return self._run("broker-1", broker | LONG)

    def _run(self, name: str, properties: dict[str, str]) -> tuple[str, int]:
        file = self._folder / name / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [sys.executable, "-I", "-m", "milena", "node", str(file)]
        with (self._folder / f"{name}.log").open("a") as log:
            node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._running.append(node)
        assert node.stdout is not None
        line = node.stdout.readline()
        assert line.startswith("ready node="), (self._folder / f"{name}.log").read_text()[-3000:]
        host, _, port = line.split()[-1].rpartition("//")[2].rpartition(":")
        return host, int(port)

    def stop(self) -> None:
        """In order: the broker first."""
        for node in reversed(self._running):
            node.terminate()
            code = node.wait(30)
            assert node.stdout is not None
            node.stdout.close()
            assert code == 0
        self._running.clear()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    unpack(tmp_path)
    found = Nodes(tmp_path)
    yield found
    found.stop()


@contextlib.asynccontextmanager
async def client_of(address: tuple[str, int]) -> AsyncIterator[Cluster]:
    client = Cluster(real_runtime(), [address])
    yield client
    client.close()


async def test_everything_is_there_and_stays(nodes: Nodes) -> None:
    before = manifest()["inventory"]
    async with client_of(nodes.start()) as client:
        assert await inventory(client) == before
        producer = Producer(client)
        assert (await producer.send("trimmed", b"new")).offset == 150
        await producer.close()
        changed = await inventory(client)
    nodes.stop()
    async with client_of(nodes.start()) as client:
        assert await inventory(client) == changed
    for topic in before["topics"]:
        assert (changed["topics"][topic] == before["topics"][topic]) == (topic != "trimmed")
