"""One of three brokers is killed with -9 while a client writes or reads: each acknowledged one is there once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.protocol.records.batch import BatchView, iter_batches
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places, coordinator_of, create_topic, place_topic
from tests.wire.clients import CODECS, Record, WireClient, all_clients
from tests.wire.conftest import RECORDS, REPLICATED
from tests.wire.waiting import wait_until

pytestmark = [
    pytest.mark.kill,
    pytest.mark.timeout(120 + RECORDS // 100),
    # aiokafka may leave the socket to a broker that was killed to the garbage collector.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

ROLES = ("leader", "follower")
KILLS = [*zip(CODECS, itertools.cycle(ROLES)), (CODECS[0], ROLES[1])]
"""The codec of the batches, and the role of the killed broker in all partitions."""
EVERYDAY = 2
"""How many of KILLS each client runs in `make test`: a leader and a follower. The four clients cover all codecs."""
CASES = [
    pytest.param(
        client, *kill, id="-".join((client.name, *kill)), marks=() if 0 <= at - n < EVERYDAY else pytest.mark.slow
    )
    for n, client in enumerate(all_clients())
    for at, kill in enumerate(KILLS)
]


@pytest.fixture(autouse=True)
def _its_own_sockets(request: pytest.FixtureRequest) -> None:
    """Let aiokafka leave the socket of a killed broker to the garbage collector; no other client may do so."""
    if "aiokafka" in request.node.name:
        ignored = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        request.node.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("kill"), brokers=3, overrides=REPLICATED) as running:
        yield running


@pytest.fixture
def own(lasting: LocalCluster) -> Iterator[LocalCluster]:
    """Three brokers that a test may kill. Those that are down are restarted after each test."""
    yield lasting
    for node in lasting.brokers:
        if node.pid is None:
            lasting.restart(node.id)


def kill_and_bring_back(cluster: LocalCluster, broker: int, topic: str) -> None:
    """Kill a broker; restart it when it has left the ISR; return when it is in the ISR again."""
    places = Places(cluster.bootstrap, topic)
    cluster.kill(broker)
    wait_until(lambda: places.none_has(broker), f"{topic} to be without broker {broker}")
    cluster.restart(broker)
    wait_until(lambda: places.all_have(broker), f"broker {broker} to be in sync")


def batches_on(cluster: LocalCluster, broker: int, topic: str) -> list[tuple[int, BatchView]]:
    """The partition and the batches of a topic on a broker that was not killed."""
    (directory,) = (one.log_dirs[0] for one in cluster.brokers if one.id == broker)
    return [
        (partition, batch)
        for partition in range(3)
        for path in sorted(Path(directory, f"{topic}-{partition}").glob("*.log"))
        for batch in iter_batches(memoryview(path.read_bytes()))
    ]


def described(batches: list[tuple[int, BatchView]], client: WireClient) -> str:
    """The batches of the log, and what the client has logged about retries."""
    lines = [
        f"{partition} {batch.base_offset}: {batch.last_offset_delta + 1} records, leader epoch {batch.leader_epoch}, "
        f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        for partition, batch in batches
    ]
    return "\n".join(["the log has another number of records:", *lines, getattr(client, "said", "")])


@pytest.mark.parametrize(("client", "codec", "role"), CASES, indirect=["client"])
def test_a_producer_survives_kill_9(own: LocalCluster, client: WireClient, topic: str, codec: str, role: str) -> None:
    leader = 1 + CODECS.index(codec) % 3
    followers = [broker.id for broker in own.brokers if broker.id != leader]
    place_topic(own.bootstrap, topic, [[leader, *followers]] * 3)
    victim = leader if role == "leader" else followers[0]
    records = numbered(RECORDS)

    def kill_victim() -> None:
        # kcat writes into a pipe: half of the records are written before the first is sent. librdkafka may count a
        # refused first batch as delivered if a later one is accepted (confluentinc/confluent-kafka-go#921).
        wait_until(lambda: {partition for partition, _ in batches_on(own, victim, topic)} == {0, 1, 2}, "first batches")
        kill_and_bring_back(own, victim, topic)

    acknowledged = client.produce(own.bootstrap, topic, records, codec=codec, halfway=kill_victim)
    assert len(acknowledged) == RECORDS
    batches = batches_on(own, followers[1], topic)
    assert sum(batch.last_offset_delta + 1 for _, batch in batches) == RECORDS, described(batches, client)
    found = client.consume(own.bootstrap, topic, RECORDS, group=topic)
    times = Counter(record for _, _, record in found)
    missing = [index for index in acknowledged if records[index] not in times]
    assert not missing, f"{len(missing)} acknowledged records are missing, the first is {missing[0]}"
    assert set(times.values()) == {1}, "an idempotent producer's record is there twice"
    assert in_order(found)


def test_a_group_survives_kill_9_of_its_coordinator(own: LocalCluster, client: WireClient, topic: str) -> None:
    create_topic(own.bootstrap, topic)
    client.produce(own.bootstrap, topic, numbered(RECORDS))
    most = RECORDS * 4 // 5
    killed = []

    def kill_coordinator() -> None:
        killed.append(coordinator_of(own.bootstrap, topic))
        kill_and_bring_back(own, killed[0], topic)

    found = client.consume(own.bootstrap, topic, most, group=topic, halfway=kill_coordinator)
    assert killed
    # The new coordinator has the offsets that were committed before, during and after the kill.
    found += client.consume(own.bootstrap, topic, RECORDS - most, group=topic)
    assert sorted(record for _, _, record in found) == sorted(numbered(RECORDS))


def numbered(count: int) -> list[Record]:
    return [(f"key-{number % 29}".encode(), f"{number:08d}".encode() + b"." * 92) for number in range(count)]


def in_order(found: list[tuple[int, int, Record]]) -> bool:
    """Whether each partition has its records in the order in which they were sent, without gaps."""
    for wanted in {partition for partition, _, _ in found}:
        places = sorted((offset, value) for partition, offset, (_, value) in found if partition == wanted)
        if [offset for offset, _ in places] != list(range(len(places))):
            return False
        values = [value for _, value in places]
        if values != sorted(values, key=lambda value: value or b""):
            return False
    return True
