"""The partition index says what a look at the whole image would say."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from milena.controller.commands.topics import DoomedTopic, delete_topics
from milena.controller.state.partition_index import PartitionIndex, PartitionKey
from milena.node.metadata.image import MetadataImage
from milena.protocol.errors import KafkaError
from tests.unit.controller.cluster import Cluster, directory

BROKERS = (1, 2, 3)


def everywhere(image: MetadataImage) -> dict[str, set[tuple[object, PartitionKey]]]:
    """The dumb oracle."""
    found: dict[str, set[tuple[object, PartitionKey]]] = {"isr": set(), "elr": set(), "dir": set(), "leader": set()}
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            key = (topic.id, number)
            found["isr"] |= {(member, key) for member in partition.isr}
            found["elr"] |= {(member, key) for member in partition.elr}
            found["dir"] |= {(where, key) for where in partition.directories}
            found["leader"].add((partition.leader, key))
    return found


def check(index: PartitionIndex, image: MetadataImage) -> None:
    expected = everywhere(image)
    for broker in BROKERS:
        assert {(broker, key) for key in index.in_isr(broker)} == {e for e in expected["isr"] if e[0] == broker}
        assert {(broker, key) for key in index.in_elr(broker)} == {e for e in expected["elr"] if e[0] == broker}
        where = directory(broker)
        assert {(where, key) for key in index.in_directory(where)} == {e for e in expected["dir"] if e[0] == where}
        assert index.leads(broker) == any(leader == broker for leader, _ in expected["leader"])
    assert {(-1, key) for key in index.leaderless()} == {e for e in expected["leader"] if e[0] == -1}
    assert index.leaderless_count == len(index.leaderless())
    partitions = [((topic.id, n), p) for topic in image.topics.values() for n, p in topic.partitions.items()]
    assert set(index.imbalanced()) == {
        key for key, partition in partitions if partition.leader != partition.replicas[0]
    }
    assert index.imbalanced_count == len(index.imbalanced())


@given(st.booleans(), st.lists(st.tuples(st.sampled_from("cfusd"), st.sampled_from(BROKERS)), max_size=25))
def test_after_any_history(elr: bool, history: list[tuple[str, int]]) -> None:
    cluster = Cluster(3, features={"eligible.leader.replicas.version": int(elr)})
    created = 0
    for action, broker in history:
        if action == "c":
            created += 1
            with contextlib.suppress(KafkaError):  # too few brokers may be there for it
                cluster.create_topic(f"t{created}", partitions=2, replicas=broker)
        elif action == "f":
            cluster.beat(broker, want_fence=True)
        elif action == "u":
            cluster.beat(broker)
        elif action == "s":
            cluster.beat(broker, want_shutdown=True)
        elif action == "d" and cluster.state.image.topics:
            name = list(cluster.state.image.topics)[broker % len(cluster.state.image.topics)]
            cluster.commit(delete_topics(cluster.state, [DoomedTopic(name, None)]))
        check(cluster.state.index, cluster.state.image)
    check(PartitionIndex.of(cluster.state.image), cluster.state.image)
