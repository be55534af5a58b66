"""Consumer groups under chaos: consumers of librdkafka, and the simulation's members over the raw protocol."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import fields, replace
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from milena.client.cluster import Cluster
from milena.lab.chaos.groups.workload import GroupWorkload
from milena.lab.histories.events import Event, Poll, RequestOutcome
from milena.lab.histories.group_events import OffsetCommit
from milena.runtime.process import real_runtime
from milena.runtime.randomness import Randomness
from tests.chaos.journal import Journal
from tests.chaos.older_clients import records

GROUP = "librdkafka"
SESSION_MS = 6000
LOOK_SECONDS = 60.0
TIMES = ("begun", "ended", "at")
"""Fields of events in the clock of who noted them."""


class ReadingMember:
    """A member of the group in its own thread: it reads, commits with metadata, goes, and comes anew."""

    def __init__(self, bootstrap: str, journal: Journal, topic: str, name: str) -> None:
        self._bootstrap, self._journal, self._topic, self._name = bootstrap, journal, topic, name
        self._random = random.Random(name)
        self._number = 0
        self._assigned = 0
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._live(self._journal.now() + self._random.uniform(4, 15))
        except BaseException as error:  # handed to the test's thread in stop
            self._error = error

    def _live(self, until: float) -> None:
        def assigned(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            self._assigned += 1

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 1000,
                "max.poll.interval.ms": 15_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic], on_assign=assigned)
        while not self._stop.is_set() and self._journal.now() < until:
            found = records(consumer.consume(200, timeout=0.3))
            for place, read in found.items():
                session = f"{self._name}, assignment {self._assigned}"
                self._journal.note(Poll(place, session, self._journal.now(), tuple(read)))
            if found:
                self._commit(consumer, {place: read[-1][0] + 1 for place, read in found.items()})
        consumer.close()

    def _commit(self, consumer: Consumer, offsets: dict[tuple[str, int], int]) -> None:
        """librdkafka may try again by itself: after an error, too, it may have taken effect."""
        self._number += 1
        metadata = f"{self._name} {self._number}"
        sent = f"{metadata}\0"  # confluent-kafka counts the byte that ends C's string
        begun, outcome = self._journal.now(), RequestOutcome.OK
        try:
            places = [TopicPartition(*place, offset, metadata) for place, offset in offsets.items()]
            told: Any = consumer.commit(offsets=places, asynchronous=False)
            if any(one.error is not None for one in told):
                outcome = RequestOutcome.UNKNOWN
        except KafkaException:
            outcome = RequestOutcome.UNKNOWN
        head = (GROUP, "", begun, self._journal.now(), outcome, "", -1)
        for partition, offset in offsets.items():
            self._journal.note(OffsetCommit(*head, partition=partition, offset=offset, metadata=sent, retried=True))


class RawGroups:
    """The simulation's clients of groups on a thread with a loop of its own, while ``work`` lasts and ``look`` asks."""

    def __init__(self, bootstrap: str, journal: Journal, partitions: list[tuple[str, int]]) -> None:
        self._addresses = [(host, int(port)) for host, _, port in map(_parts, bootstrap.split(","))]
        self._journal = journal
        self._partitions = partitions
        self._runner = asyncio.Runner()
        self._workload: GroupWorkload | None = None
        self._cluster: Cluster | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def note(self, event: Event) -> None:
        """In the journal's time."""
        names = {one.name for one in fields(event)}
        moved: Any = {name: self._journal.since(getattr(event, name)) for name in TIMES if name in names}
        self._journal.note(replace(event, **moved))

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="raw groups")
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        assert self._thread is not None and self._workload is not None
        self._runner.get_loop().call_soon_threadsafe(self._workload.stopping.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Fetch what all groups have, librdkafka's too; to be called while nobody works."""
        self._runner.run(self._look())

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        self._runner.close()

    def _run(self, ready: threading.Event) -> None:
        try:
            self._runner.run(self._work(ready))
        except BaseException as error:  # handed to the test's thread in stop
            self._error = error
        finally:
            ready.set()

    def _known(self) -> GroupWorkload:
        if self._workload is None:
            self._cluster = Cluster(real_runtime(self._failed), self._addresses, "raw groups", request_timeout=5.0)
            self._workload = GroupWorkload(self._cluster, self.note, Randomness(1), self._partitions)
        return self._workload

    def _failed(self, description: str, error: BaseException | None) -> None:
        self._error = error or RuntimeError(description)

    async def _work(self, ready: threading.Event) -> None:
        workload = self._known()
        workload.stopping.clear()
        ready.set()
        async with asyncio.TaskGroup() as working:
            for work in workload.all():
                working.create_task(work)

    async def _look(self) -> None:
        workload = self._known()
        async with asyncio.timeout(LOOK_SECONDS):
            await workload.look(also=[GROUP])


def _parts(address: str) -> tuple[str, str, str]:
    return address.rpartition(":")
