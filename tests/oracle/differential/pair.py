"""Kafka and Milena side by side: each request is sent to both."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.schemas.registry import REGISTRY
from tests.oracle.differential.likeness import differences, normal
from tests.oracle.differential.sides import CLIENT_ID, Line, Name, Side

TIMEOUT_MS: Final = 10_000
PATIENCE: Final = 15.0
"""Seconds to wait for changes that have no response."""


@dataclass
class Answers:
    """The responses of both sides, as plain data."""

    sides: tuple[Side, Side]
    both: tuple[Any, Any]

    @property
    def kafka(self) -> Any:
        return self.both[0]

    @property
    def milena(self) -> Any:
        return self.both[1]

    def learn(self, name: str, read: Callable[[Any], Any]) -> Name:
        """Give a name to an id that each side has created and that ``read`` finds in its response."""
        for side, answer in zip(self.sides, self.both, strict=True):
            side.names[name] = read(answer)
        return Name(name)

    def differences(self, ignore: Collection[str] = ()) -> list[str]:
        kafka, milena = (normal(side, answer, ignore) for side, answer in zip(self.sides, self.both, strict=True))
        return list(differences(kafka, milena))

    def check(self, asked: str, ignore: Collection[str] = ()) -> Answers:
        found = self.differences(ignore)
        assert not found, f"{asked}\n" + "\n".join(found)
        return self


class Pair:
    """A client with one connection to each side."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self.sides = sides
        self._lines = [Line(side) for side in sides]

    def another(self) -> Pair:
        """Return one more client."""
        return Pair(self.sides)

    def close(self) -> None:
        for line in self._lines:
            line.close()

    def send(self, key: ApiKey, version: int, /, *, client_id: str | None = CLIENT_ID, **fields: Any) -> None:
        for line in self._lines:
            line.send(key, version, messages.encode_request(key, version, **line.side.resolve(fields)), client_id)

    def receive(self, key: ApiKey, version: int) -> Answers:
        kafka, milena = (line.receive(key, version) for line in self._lines)
        return Answers(self.sides, (kafka, milena))

    def receive_from_milena(self, key: ApiKey, version: int) -> Any:
        """Receive Milena's response if Kafka sends none."""
        return self._lines[1].receive(key, version)

    def waits(self) -> tuple[bool, bool]:
        """Whether each side has sent nothing of a response yet."""
        kafka, milena = (line.waits() for line in self._lines)
        return kafka, milena

    def ask(self, key: ApiKey, version: int, /, *, client_id: str | None = CLIENT_ID, **fields: Any) -> Answers:
        """Send a request; return both responses, which may differ. A ``Name`` among the fields becomes a side's id."""
        self.send(key, version, client_id=client_id, **fields)
        return self.receive(key, version)

    def same(
        self,
        key: ApiKey,
        version: int,
        /,
        *,
        ignore: Collection[str] = (),
        client_id: str | None = CLIENT_ID,
        **fields: Any,
    ) -> Answers:
        """Send a request and return both responses, which must be the same."""
        answers = self.ask(key, version, client_id=client_id, **fields)
        return answers.check(f"{key.name} v{version} {reprlib.repr(fields)}", ignore)

    def settled(self, key: ApiKey, version: int, /, *, until: Callable[[Any], bool], **fields: Any) -> Answers:
        """Send a request to each side until its response satisfies ``until``, and return these responses. A side that
        was quick is not asked again."""

        def ask(line: Line) -> Any:
            body = messages.encode_request(key, version, **line.side.resolve(fields))
            answers: list[Any] = []

            def once() -> None:
                line.send(key, version, body)
                answers.append(line.receive(key, version))
                assert until(answers[-1]), f"{line.side.title}: {answers[-1]}"

            eventually(once)
            return answers[-1]

        kafka, milena = (ask(line) for line in self._lines)
        return Answers(self.sides, (kafka, milena))

    def send_raw(self, key: ApiKey, version: int, body: bytes) -> None:
        for line in self._lines:
            line.send(key, version, body)

    def send_bytes(self, data: bytes) -> None:
        for line in self._lines:
            line.write(data)

    # -- preparations of most tests

    def create(self, topic: str, partitions: int = 1, **configs: object) -> Name:
        """Create a topic on both sides; return the name of its id. Config keys have ``_`` for ``.``."""
        values = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": values}
        answers = self.ask(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout_ms=TIMEOUT_MS)
        for answer in answers.both:
            assert answer["topics"][0]["error_code"] == 0, answer
        name = answers.learn(f"id of {topic}", lambda answer: answer["topics"][0]["topic_id"])
        self.until_led(topic, *range(partitions))
        return name

    def delete(self, topic: str) -> None:
        """Delete a topic on both sides and wait until the brokers have applied that."""
        for answer in self.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=TIMEOUT_MS).both:
            assert answer["responses"][0]["error_code"] == 0, answer
        self._until(lambda error: error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, 0)

    def id_of(self, topic: str) -> Name:
        """Return the name of the id of an existing topic."""
        answers = self.ask(ApiKey.METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
        return answers.learn(f"id of {topic}", lambda answer: answer["topics"][0]["topic_id"])

    def until_led(self, topic: str, *partitions: int) -> None:
        """Wait until both brokers lead these partitions. Kafka returns the leader in metadata a moment earlier."""
        self._until(lambda error: not error, topic, *partitions)

    def _until(self, enough: Callable[[int], bool], topic: str, *partitions: int) -> None:
        """Wait for both brokers: the response to a change comes as soon as the controller has applied it."""
        asked = [{"partition_index": index, "timestamp": -1} for index in partitions]
        request = messages.encode_request(
            ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": topic, "partitions": asked}]
        )

        def look() -> None:
            for line in self._lines:
                line.send(ApiKey.LIST_OFFSETS, 7, request)
                answer = line.receive(ApiKey.LIST_OFFSETS, 7)
                assert all(enough(one["error_code"]) for one in answer["topics"][0]["partitions"]), line.side.title

        eventually(look)

    def produce(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Append valid batches on both sides."""
        for batch in batches:
            data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
            answers = self.ask(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)
            for side, answer in zip(answers.sides, answers.both, strict=True):
                assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, f"{side.title}: {answer}"


def versions(key: ApiKey, *, since: int = 0, until: int = 99) -> range:
    """Return the versions of an API that Milena serves."""
    served = REGISTRY[key].ours
    assert served is not None
    return range(max(served.min, since), min(served.max, until) + 1)


def eventually(look: Callable[[], None]) -> None:
    """Wait until ``look`` finds nothing wrong: brokers apply a change some time after the controller's response."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            look()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
