"""Transactions in several states: ended, ongoing, and hanging."""

from __future__ import annotations

import asyncio
from typing import Final

from milena.client.admin import NewTopic, create_topics
from milena.client.cluster import Cluster
from milena.client.transactional import TransactionalProducer
from milena.client.transactions import describe_transaction
from milena.command_line.bootstrap import parse_addresses
from milena.runtime.process import real_runtime

UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}
"""The setting of brokers with which a transaction can hang."""
LONG_AGO: Final = 1_600_000_000_000
"""The timestamp (ms) of a hanging transaction's record."""


class Forgetful(TransactionalProducer):
    """A producer of transaction version 1 that does not add partitions to its transaction, so that the coordinator will
    not write markers there (KAFKA-14402)."""

    async def _add_partitions(self) -> None:
        self._added.update(self._to_add)


def make_transactions(bootstrap: str, name: str) -> None:
    """Create topic ``name`` with 2 partitions. The transactional ids ``NAME-ended`` and ``NAME-ongoing`` write to
    partition 1, ``NAME-hanging`` to partition 0."""
    asyncio.run(_make(bootstrap, name))


async def _make(bootstrap: str, name: str) -> None:
    cluster = Cluster(real_runtime(), parse_addresses(bootstrap))
    await create_topics(cluster, [NewTopic(name, 2)])
    ended = TransactionalProducer(cluster, f"{name}-ended")
    ongoing = TransactionalProducer(cluster, f"{name}-ongoing")
    hanging = Forgetful(cluster, f"{name}-hanging", newest=1)
    for producer in (ended, ongoing, hanging):
        await producer.init()
        producer.begin()
    await ended.send(name, b"ended", partition=1)
    await ended.commit()
    attempt = 0
    while (await describe_transaction(cluster, f"{name}-ended")).state != "CompleteCommit":  # the marker is written
        await cluster.pause(attempt)
        attempt += 1
    await ongoing.send(name, b"ongoing", partition=1)
    await hanging.send(name, b"hanging", partition=0, timestamp=LONG_AGO)
    cluster.close()
