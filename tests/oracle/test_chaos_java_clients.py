"""The Java clients execute the operations of the chaos workload."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from milena.lab.chaos.clients import Clients
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.testing.chaos_clients.limits import Limits
from milena.testing.local_cluster import LocalCluster
from tests.chaos.clients.contract import ClientsContract
from tests.chaos.clients.java_clients import JavaClients
from tests.chaos.clients.transactions_contract import TransactionsContract
from tests.wire.waiting import wait_gone


class TestJava(ClientsContract, TransactionsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return JavaClients(bootstrap, limits)

    async def test_pending_operations_are_unknown_if_the_process_ends(self, cluster: LocalCluster, topic: str) -> None:
        clients = JavaClients(cluster.bootstrap)
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        consumer = await clients.consumer({(topic, 0): 0})
        assert (await producer.send((topic, 0), None, "value")).outcome is RequestOutcome.OK
        (jvm,) = clients.processes
        os.kill(jvm, signal.SIGKILL)
        assert (await producer.send((topic, 0), None, "value")).outcome is RequestOutcome.UNKNOWN
        assert not await consumer.poll(0.1)
        assert await consumer.end_of((topic, 0)) is None
        again = await clients.producer(acks=ACKS_ALL, idempotent=True)
        assert (await again.send((topic, 0), None, "value")).outcome is RequestOutcome.OK
        for one in (producer, consumer, again):
            await one.close()


ORPHAN = """
import asyncio
from tests.chaos.clients.jvm import Jvm

async def main():
    print((await Jvm.start()).pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_the_process_ends_with_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_gone([pid], 20)
