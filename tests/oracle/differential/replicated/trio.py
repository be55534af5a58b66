"""Two clusters of three brokers side by side: each request is sent to the broker with the same id in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.pair import TIMEOUT_MS, Answers, Pair, eventually
from tests.oracle.differential.sides import Name, Side

BROKERS: Final = (1, 2, 3)


class Trio:
    """A ``Pair`` for each broker id. All of them share the names of ids."""

    def __init__(self, sides: Mapping[int, tuple[Side, Side]]) -> None:
        self._pairs = {broker: Pair(both) for broker, both in sides.items()}

    def at(self, broker: int) -> Pair:
        return self._pairs[broker]

    def close(self) -> None:
        for pair in self._pairs.values():
            pair.close()

    def create(self, topic: str, *replicas: Sequence[int], **configs: object) -> Name:
        """Create a topic with these replicas of each partition, the first of which leads. Return the name of its id."""
        values = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        plan = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas)]
        wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": plan}
        asked: dict[str, Any] = {"topics": [wanted | {"configs": values}], "timeout_ms": TIMEOUT_MS}
        answers = self.at(1).ask(ApiKey.CREATE_TOPICS, 7, **asked)
        for answer in answers.both:
            assert answer["topics"][0]["error_code"] == 0, answer
        name = answers.learn(f"id of {topic}", lambda answer: answer["topics"][0]["topic_id"])
        for index, ids in enumerate(replicas):
            for broker in BROKERS:
                self.until(topic, index, at=broker, leader_id=ids[0], isr_nodes=sorted(ids))
            self.at(ids[0]).until_led(topic, index)
        return name

    def until(self, topic: str, partition: int, *, at: int = 1, **expected: Any) -> None:
        """Wait until a broker's metadata of a partition are as given, on both sides."""

        def look() -> None:
            topics = [{"name": topic, "topic_id": None}]
            answers = self.at(at).ask(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=False)
            for side, answer in zip(answers.sides, answers.both, strict=True):
                found = {one["partition_index"]: one for one in answer["topics"][0]["partitions"]}
                assert partition in found, f"{side.title} does not know {topic}-{partition}"
                now = found[partition] | {"isr_nodes": sorted(found[partition]["isr_nodes"])}
                for field, value in expected.items():
                    assert now[field] == value, f"{side.title}: {field} of {topic}-{partition} is {now[field]}"

        eventually(look)

    def until_committed(self, topic: str, partition: int, offset: int, *, at: int) -> None:
        """Wait until a replica has this high watermark, on both sides: a follower gets it with a later fetch."""
        part = {"partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "partition_max_bytes": 1}
        asked: dict[str, Any] = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1,
            "session_epoch": -1,
        }
        topics = [{"topic": topic, "partitions": [part | {"log_start_offset": -1}]}]

        def look() -> None:
            answers = self.at(at).ask(ApiKey.FETCH, 11, topics=topics, **asked)
            for side, answer in zip(answers.sides, answers.both, strict=True):
                found = answer["responses"][0]["partitions"][0]["high_watermark"]
                assert found == offset, f"{side.title}: the high watermark of {topic}-{partition} is {found}"

        eventually(look)

    def same(self, broker: int, key: ApiKey, version: int, /, **fields: Any) -> Answers:
        return self.at(broker).same(key, version, **fields)
