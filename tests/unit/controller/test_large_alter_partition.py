"""AlterPartition for many partitions: the controller alters some at a time, and answers as for one at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from milena.controller.apis import alter_partition
from milena.controller.apis.alter_partition import PARTITIONS_PER_YIELD
from milena.controller.state.result import Result
from milena.node.api import RequestContext
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from tests.unit.controller.cluster import Cluster

MANY = 2 * PARTITIONS_PER_YIELD + 100


class Node:
    """A controller that commits at once, and notes the number of records of each write."""

    def __init__(self, cluster: Cluster) -> None:
        self.state = cluster.state
        self.client_log = SimpleNamespace(info=lambda *_, **__: None)
        self.writes: list[int] = []
        self._cluster = cluster

    def write(self, result: Result[Any]) -> None:
        self.writes.append(len(result.records))
        self._cluster.write(result.records)

    def commit(self, result: Result[Any], answer: Callable[[Any], Any]) -> Any:
        self.write(result)
        return answer(result.response)


def altered(cluster: Cluster, topics: Sequence[Mapping[str, Any]], **fields: Any) -> tuple[Any, list[int]]:
    """Send a request that shrinks the ISR of partitions to broker 1. Return the response's fields and the writes."""
    epoch = cluster.state.image.brokers[1].epoch
    request: dict[str, Any] = {"broker_id": 1, "broker_epoch": epoch, "topics": topics} | fields
    built = messages.build_request(ApiKey.ALTER_PARTITION, 3, **request)
    node = Node(cluster)
    answer: Any = alter_partition.handle(node, cast("RequestContext", SimpleNamespace(version=3)), built)  # type: ignore[arg-type]
    return answer if isinstance(answer, Mapping) else run_now(answer), node.writes


def proposals(cluster: Cluster, topic_id: UUID, *partitions: int) -> Mapping[str, Any]:
    members = [{"broker_id": 1, "broker_epoch": cluster.state.image.brokers[1].epoch}]
    fields = {"leader_epoch": 0, "new_isr_with_epochs": members, "leader_recovery_state": 0, "partition_epoch": 0}
    return {"topic_id": topic_id, "partitions": [{"partition_index": index, **fields} for index in partitions]}


def led(partitions: int, name: str = "t", cluster: Cluster | None = None) -> tuple[Cluster, UUID, list[int]]:
    """A cluster with a topic, and the partitions that broker 1 leads."""
    cluster = cluster or Cluster(2)
    topic_id = cluster.create_topic(name, partitions=partitions, replicas=2)
    found = cluster.state.image.topics[name].partitions
    return cluster, topic_id, [index for index, partition in found.items() if partition.leader == 1]


def test_many_partitions_are_altered_in_several_writes_and_answered_in_their_order() -> None:
    cluster, topic_id, mine = led(2 * MANY)
    assert len(mine) > 2 * PARTITIONS_PER_YIELD
    response, writes = altered(cluster, [proposals(cluster, topic_id, *mine)])
    assert max(writes) == PARTITIONS_PER_YIELD and sum(writes) == len(mine)
    (topic,) = response["topics"]
    assert [partition["partition_index"] for partition in topic["partitions"]] == mine
    assert {partition["error_code"] for partition in topic["partitions"]} == {0}
    assert {tuple(partition["isr"]) for partition in topic["partitions"]} == {(1,)}
    assert all(cluster.state.image.topics["t"].partitions[index].isr == (1,) for index in mine)


def test_many_topics_share_a_write() -> None:
    cluster = Cluster(1)
    topics = []
    for number in range(MANY):
        topic_id = cluster.create_topic(f"t{number}")
        topics.append(proposals(cluster, topic_id, 0))
    response, writes = altered(cluster, topics)
    assert [topic["topic_id"] for topic in response["topics"]] == [topic["topic_id"] for topic in topics]
    assert sum(writes) == 0, "the ISRs are the present ones"
    assert len(writes) == -(-MANY // PARTITIONS_PER_YIELD) + 1, "one for each part, and one for the response"


def test_a_partition_that_is_listed_again_in_a_later_part_is_refused() -> None:
    cluster, topic_id, mine = led(2 * MANY)
    response, _ = altered(cluster, [proposals(cluster, topic_id, *mine, mine[0])])
    (topic,) = response["topics"]
    assert topic["partitions"][-1] == {
        "partition_index": mine[0],
        "error_code": int(ErrorCode.INVALID_UPDATE_VERSION),
    }


def test_few_partitions_are_one_write() -> None:
    cluster, topic_id, mine = led(10)
    response, writes = altered(cluster, [proposals(cluster, topic_id, *mine)])
    assert writes == [len(mine)]
    assert len(response["topics"][0]["partitions"]) == len(mine)
