"""``python -m benchmarks.limits [WORD...]``: legal requests at their limits, and the delays of other clients.

One controller, and one broker with 10,000 topics of 10 partitions. For each request the table has the longest time for
which it holds the loop of each node (``benchmarks.stalls``), and how long heartbeats and small fetches of other clients
wait. Each request is sent four times; the first one is not counted. WORDs select requests whose title has one of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from benchmarks.forms import COMPILED, PURE, check_runs, chosen
from benchmarks.stalls import Small, Watched, measured, worst
from benchmarks.wire import Wire, fetch_body, framed, produce_body
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.limits import MAX_ELEMENTS, MAX_FETCHED, MAX_PRODUCED, max_elements
from milena.protocol.records.batch import Codec, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.records import Record, build_batch
from milena.protocol.records.varints import write_varint
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header
from milena.testing.local_cluster import LocalCluster

TOPICS: Final = 10_000
PARTITIONS: Final = 10
AT_ONCE: Final = 900
"""Topics of one CreateTopics: the controller writes at most 10,000 records."""
ROUNDS: Final = 4
BATCH_BYTES: Final = 1_048_588
"""The default of ``message.max.bytes``."""
MIB: Final = 1 << 20
PRETENDERS: Final = (101, 102, 103)
"""Brokers that this program registers; they lead the partitions of AlterPartition."""
OVERRIDES: Final = {
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "3600000",
    "broker.connection.loss.fencing.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
GROUP: Final = "group-of-limits"
NAME: Final = "topic-of-limits-{:05d}"


class Case(NamedTuple):
    """A request at its limit. ``body`` returns the encoded request of a round."""

    key: ApiKey
    version: int
    about: str
    body: Callable[[int], bytes]
    to_controller: bool = False
    forwarded: bool = False
    """The broker sends it on to the controller: both are watched."""

    @property
    def title(self) -> str:
        return f"{self.key.name.title().replace('_', '')}: {self.about}"


class Bench:
    """The measured cluster."""

    def __init__(self, cluster: LocalCluster, topics: int) -> None:
        self._cluster = cluster
        self.broker = _address(cluster.bootstrap)
        self.controller = _address(next(iter(cluster.controller.listeners.values())))
        self.names = [NAME.format(number) for number in range(topics)]
        self.ids: dict[str, UUID] = {}
        self.epochs: dict[int, int] = {}
        """Of the pretenders."""

    def ask(self, address: tuple[str, int], key: ApiKey, version: int, **fields: Any) -> Any:
        with closing(Wire(address)) as wire:
            wire.send(key, version, messages.encode_request(key, version, **fields))
            return decoded(key, version, wire.receive())

    def create(self, topics: Sequence[Mapping[str, Any]]) -> None:
        """Create topics, and wait until the broker has those that it hosts. Raises RuntimeError."""
        for first in range(0, len(topics), AT_ONCE):
            some = topics[first : first + AT_ONCE]
            fields = {"topics": some, "timeout_ms": 60_000, "validate_only": False}
            answer = self.ask(self.broker, ApiKey.CREATE_TOPICS, 7, **fields)
            if wrong := [topic for topic in answer.topics if topic.error_code]:
                raise RuntimeError(f"{len(wrong)} topics were not created: {wrong[0]}")
            self.ids.update({topic.name: topic.topic_id for topic in answer.topics})

    def until_led(self) -> None:
        """Wait until the broker answers for the last partition of each topic."""
        deadline = time.monotonic() + 300
        asked = [
            {"name": name, "partitions": [{"partition_index": PARTITIONS - 1, "timestamp": -1}]} for name in self.names
        ]
        while True:
            answer = self.ask(self.broker, ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=asked)
            if not any(one.error_code for topic in answer.topics for one in topic.partitions):
                return
            if time.monotonic() > deadline:
                raise TimeoutError("not all partitions are led")
            time.sleep(0.2)

    def until_coordinating(self) -> None:
        """Wait until the broker coordinates the group."""
        fields = {"key_type": 0, "coordinator_keys": [GROUP]}
        while self.ask(self.broker, ApiKey.FIND_COORDINATOR, 4, **fields).coordinators[0].error_code:
            time.sleep(0.2)

    def register_pretenders(self) -> None:
        for broker in PRETENDERS:
            directory = uuid4()
            cluster_id = self.ask(self.broker, ApiKey.METADATA, 12, topics=[]).cluster_id
            answer = self.ask(
                self.controller,
                ApiKey.BROKER_REGISTRATION,
                4,
                broker_id=broker,
                cluster_id=cluster_id,
                incarnation_id=uuid4(),
                listeners=[{"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}],
                features=[
                    {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 40},
                    {"name": "transaction.version", "min_supported_version": 0, "max_supported_version": 2},
                ],
                rack=None,
                is_migrating_zk_broker=False,
                log_dirs=[directory],
                previous_broker_epoch=-1,
            )
            _expect(answer.error_code)
            self.epochs[broker] = answer.broker_epoch
            for _ in range(2):
                answer = self.ask(
                    self.controller,
                    ApiKey.BROKER_HEARTBEAT,
                    1,
                    broker_id=broker,
                    broker_epoch=self.epochs[broker],
                    current_metadata_offset=1 << 40,
                    want_fence=False,
                    want_shut_down=False,
                    offline_log_dirs=[],
                )
                _expect(answer.error_code)

    def watched_broker(self) -> Watched:
        heartbeat = {"group_id": GROUP, "generation_id": 1, "member_id": "missing", "group_instance_id": None}
        fetch = framed(ApiKey.FETCH, 12, fetch_body(self.names[0], 0, max_wait_ms=0))
        return Watched(
            self.broker,
            self._pid(self._cluster.brokers[0].id),
            (_small(ApiKey.HEARTBEAT, 4, heartbeat), Small("Fetch", fetch)),
        )

    def watched_controller(self) -> Watched:
        heartbeat = {
            "broker_id": PRETENDERS[0],
            "broker_epoch": self.epochs[PRETENDERS[0]],
            "current_metadata_offset": 0,
            "want_fence": False,
            "want_shut_down": False,
            "offline_log_dirs": [],
        }
        quorum = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        smalls = (_small(ApiKey.BROKER_HEARTBEAT, 1, heartbeat), _small(ApiKey.DESCRIBE_QUORUM, 2, quorum))
        return Watched(self.controller, self._pid(self._cluster.controller.id), smalls)

    def _pid(self, node: int) -> int:
        pid = self._cluster.nodes[node].pid
        assert pid is not None
        return pid


def _small(key: ApiKey, version: int, fields: Mapping[str, Any]) -> Small:
    return Small(key.name, framed(key, version, messages.encode_request(key, version, **fields)))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _expect(code: int) -> None:
    if code:
        raise RuntimeError(f"the controller answered {ErrorCode(code).name}")


def decoded(key: ApiKey, version: int, frame: bytes) -> Any:
    _, body = parse_response_header(key, version, memoryview(frame))
    return messages.decode_response(key, version, body)


# The requests


def cases(bench: Bench) -> Iterator[Case]:
    yield from reading(bench)
    yield from fetching(bench)
    yield from producing(bench)
    yield from committing(bench)
    yield from joining(bench)
    yield from changing(bench)
    yield from proposing(bench)


def _same(key: ApiKey, version: int, about: str, **fields: Any) -> Case:
    """The same request in each round."""

    @cache
    def body() -> bytes:
        return messages.encode_request(key, version, **fields)

    return Case(key, version, about, lambda _: body())


def reading(bench: Bench) -> Iterator[Case]:
    names, count = bench.names, len(bench.names) * PARTITIONS
    missing = [{"topic_id": None, "name": f"missing-{number}"} for number in range(MAX_ELEMENTS)]
    flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    yield _same(ApiKey.METADATA, 12, f"all {len(names)} topics", topics=None, **flags)
    named = [{"topic_id": None, "name": name} for name in names]
    yield _same(ApiKey.METADATA, 12, f"{len(names)} names", topics=named, **flags)
    yield _same(ApiKey.METADATA, 12, f"{len(missing)} unknown names", topics=missing, **flags)
    for about, timestamp in (("latest", -1), ("by time", 1)):
        partitions = [{"partition_index": index, "timestamp": timestamp} for index in range(PARTITIONS)]
        topics = [{"name": name, "partitions": partitions} for name in names]
        yield _same(
            ApiKey.LIST_OFFSETS, 7, f"{count} partitions, {about}", replica_id=-1, isolation_level=0, topics=topics
        )
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
    more = {"include_synonyms": False, "include_documentation": False}
    yield _same(ApiKey.DESCRIBE_CONFIGS, 4, f"{len(names)} topics", resources=resources, **more)
    more = {"include_synonyms": True, "include_documentation": True}
    yield _same(
        ApiKey.DESCRIBE_CONFIGS, 4, f"{len(names)} topics, synonyms, documentation", resources=resources, **more
    )
    yield _same(
        ApiKey.DELETE_RECORDS,
        2,
        "25000 elements",
        topics=[
            {"name": name, "partitions": [{"partition_index": index, "offset": -1} for index in range(PARTITIONS)]}
            for name in names[: max_elements(ApiKey.DELETE_RECORDS) // (1 + PARTITIONS)]
        ],
        timeout_ms=30_000,
    )


def fetching(bench: Bench) -> Iterator[Case]:
    limits = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50 << 20, "session_id": 0}

    def topics(count: int, each: int) -> list[Mapping[str, Any]]:
        wanted = {"fetch_offset": 0, "partition_max_bytes": MIB}
        return [
            {"topic": name, "partitions": [{"partition": index, **wanted} for index in range(each)]}
            for name in bench.names[:count]
        ]

    wide, count = topics(TOPICS, 1), min(MAX_FETCHED // (1 + PARTITIONS), len(bench.names))
    deep = topics(count, PARTITIONS)
    yield _same(ApiKey.FETCH, 12, f"{len(wide)} topics, full", session_epoch=-1, topics=wide, **limits)
    yield _same(ApiKey.FETCH, 12, f"{len(wide)} topics, new session", session_epoch=0, topics=wide, **limits)
    yield _same(ApiKey.FETCH, 12, f"{count * PARTITIONS} partitions", session_epoch=-1, topics=deep, **limits)


def producing(bench: Bench) -> Iterator[Case]:
    small = build_batch([Record(0, 0, None, b"x")], base_timestamp=1_700_000_000_000)
    each = 4
    topics = [
        {"name": name, "partition_data": [{"index": index, "records": small} for index in range(each)]}
        for name in bench.names[: MAX_PRODUCED // (1 + each)]
    ]
    about = f"{len(topics) * each} partitions"
    yield _same(ApiKey.PRODUCE, 9, about, transactional_id=None, acks=1, timeout_ms=30_000, topic_data=topics)
    for codec in Codec:
        body = partial(_produced, partial(_largest_batch, codec))
        yield Case(ApiKey.PRODUCE, 9, f"as many records as fit, {codec.name.lower()}", body)
        if codec not in (Codec.NONE, Codec.SNAPPY):  # these exceed the limit
            body = partial(_produced, partial(_zeros, codec))
            yield Case(ApiKey.PRODUCE, 9, f"200 MiB of zeros, {codec.name.lower()}", body)


def _produced(batch: Callable[[], bytes], _round: int) -> bytes:
    return produce_body(NAME.format(0), batch())


@cache
def _smallest_records() -> tuple[bytearray, list[int]]:
    """Records without key and value, and the end of each."""
    raw, ends = bytearray(), []
    for number in range(2_000_000):
        body = bytearray(b"\0\0")
        write_varint(body, number)
        body += b"\1\1\0"  # no key, no value, no headers
        write_varint(raw, len(body))
        raw += body
        ends.append(len(raw))
    return raw, ends


@cache
def _zeros(codec: Codec) -> bytes:
    return build_batch([Record(0, 0, None, bytes(200 * MIB))], codec=codec, base_timestamp=1_700_000_000_000)


@cache
def _largest_batch(codec: Codec) -> bytes:
    """The batch with the most records that ``message.max.bytes`` allows, nearly."""
    raw, ends = _smallest_records()
    count = len(ends)
    while len(batch := _batch(codec, raw[: ends[count - 1]], count)) > BATCH_BYTES:
        count = int(count * min(0.99, BATCH_BYTES / len(batch)))
    return batch


def _batch(codec: Codec, records: bytearray, count: int) -> bytes:
    now = 1_700_000_000_000
    data = compress(codec, records)
    return bytes(
        pack_batch(data, count=count, last_offset_delta=count - 1, base_timestamp=now, max_timestamp=now, codec=codec)
    )


def committing(bench: Bench) -> Iterator[Case]:
    def commit(count: int, each: int) -> Callable[[int], bytes]:
        partition = {"committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [
            {"name": name, "partitions": [{"partition_index": index, **partition} for index in range(each)]}
            for name in bench.names[:count]
        ]
        return lambda _: messages.encode_request(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )

    for count, each in ((len(bench.names), 1), (len(bench.names), PARTITIONS)):
        yield Case(ApiKey.OFFSET_COMMIT, 8, f"{count * each} partitions", commit(count, each))
    topics = [{"name": name, "partition_indexes": range(PARTITIONS)} for name in bench.names]
    count = len(topics) * PARTITIONS
    group = {"group_id": GROUP, "topics": topics}
    yield _same(ApiKey.OFFSET_FETCH, 8, f"{count} partitions", groups=[group], require_stable=False)
    yield _same(
        ApiKey.OFFSET_FETCH, 8, "all offsets", groups=[{"group_id": GROUP, "topics": None}], require_stable=False
    )


def joining(bench: Bench) -> Iterator[Case]:
    def join(group: str, member: str, protocols: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {
            "group_id": group,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": protocols,
        }

    def member_of(group: str) -> str:
        fields = join(group, "", [{"name": "range", "metadata": b""}])
        return str(bench.ask(bench.broker, ApiKey.JOIN_GROUP, 7, **fields).member_id)

    def joined(about: str, protocols: Sequence[Mapping[str, Any]]) -> Callable[[int], bytes]:
        def body(number: int) -> bytes:
            group = f"joined-{about}-{number}"
            return messages.encode_request(ApiKey.JOIN_GROUP, 7, **join(group, member_of(group), protocols))

        return body

    def synced(number: int) -> bytes:
        group = f"synced-{number}"
        member, protocols = member_of(group), [{"name": "range", "metadata": b""}]
        generation = bench.ask(bench.broker, ApiKey.JOIN_GROUP, 7, **join(group, member, protocols)).generation_id
        others = [
            {"member_id": f"member-{one}", "assignment": bytes(30)}
            for one in range(max_elements(ApiKey.SYNC_GROUP) - 1)
        ]
        assignments = [{"member_id": member, "assignment": bytes(900_000)}, *others]
        fields = {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": None}
        return messages.encode_request(ApiKey.SYNC_GROUP, 4, **fields, assignments=assignments)

    names = [f"protocol-{number}" for number in range(max_elements(ApiKey.JOIN_GROUP))]
    many = [{"name": name, "metadata": bytes(100)} for name in names]
    yield Case(ApiKey.JOIN_GROUP, 7, f"{len(names)} protocols", joined("many", many))
    large = [{"name": "range", "metadata": bytes(90 * MIB)}]
    yield Case(ApiKey.JOIN_GROUP, 7, "90 MiB of metadata", joined("large", large))
    yield Case(ApiKey.SYNC_GROUP, 4, "25000 assignments", synced)


def changing(bench: Bench) -> Iterator[Case]:
    def topics(number: int, count: int, partitions: int) -> list[Mapping[str, Any]]:
        return [
            {
                "name": f"changed-{number}-{partitions}-{one:05d}",
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": (),
                "configs": (),
            }
            for one in range(count)
        ]

    for count, partitions in ((5_000, 1), (1, 9_999), (25_000, 1)):
        yield Case(
            ApiKey.CREATE_TOPICS,
            7,
            f"{count} topics of {partitions}",
            lambda number, count=count, partitions=partitions: messages.encode_request(  # type: ignore[misc]
                ApiKey.CREATE_TOPICS,
                7,
                topics=topics(number, count, partitions),
                timeout_ms=60_000,
                validate_only=False,
            ),
            forwarded=True,
        )
        if count == 25_000:
            continue
        yield Case(
            ApiKey.DELETE_TOPICS,
            5,
            f"{count} topics of {partitions}",
            lambda number, count=count, partitions=partitions: messages.encode_request(  # type: ignore[misc]
                ApiKey.DELETE_TOPICS,
                5,
                topic_names=[topic["name"] for topic in topics(number, count, partitions)],
                timeout_ms=60_000,
            ),
            forwarded=True,
        )
    for each in (1, 4):
        keys = ("flush.ms", "retention.ms", "segment.ms", "max.message.bytes")[:each]
        names = bench.names[: max_elements(ApiKey.ALTER_CONFIGS) // (1 + each)]

        def configs(number: int, keys: Sequence[str] = keys) -> list[Mapping[str, Any]]:
            return [{"name": key, "config_operation": 0, "value": str(1_000_000 + number)} for key in keys]

        for key, version in ((ApiKey.ALTER_CONFIGS, 2), (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)):
            yield Case(
                key,
                version,
                f"{len(names)} topics, {each} keys",
                lambda number, key=key, version=version, names=names, configs=configs: messages.encode_request(  # type: ignore[misc]
                    key,
                    version,
                    resources=[
                        {"resource_type": 2, "resource_name": name, "configs": configs(number)} for name in names
                    ],
                    validate_only=False,
                ),
                forwarded=True,
            )


def proposing(bench: Bench) -> Iterator[Case]:
    """AlterPartition, of a broker that leads 10,000 or 15,000 partitions."""
    prefix = "led-by-another"
    assignment = [{"partition_index": 0, "broker_ids": PRETENDERS}]
    names = [f"{prefix}-{number:05d}" for number in range(max_elements(ApiKey.ALTER_PARTITION) // 5)]
    blank = {"num_partitions": -1, "replication_factor": -1, "configs": ()}
    epochs = dict.fromkeys(names, 0)

    def body(count: int) -> Callable[[int], bytes]:
        def made(number: int) -> bytes:
            if names[0] not in bench.ids:
                bench.create([{"name": name, "assignments": assignment, **blank} for name in names])
            isr = PRETENDERS[: 2 + number % 2]
            members = [{"broker_id": broker, "broker_epoch": bench.epochs[broker]} for broker in isr]
            topics = [
                {
                    "topic_id": bench.ids[name],
                    "partitions": [
                        {
                            "partition_index": 0,
                            "leader_epoch": 0,
                            "new_isr_with_epochs": members,
                            "leader_recovery_state": 0,
                            "partition_epoch": epochs[name],
                        }
                    ],
                }
                for name in names[:count]
            ]
            epochs.update({name: epochs[name] + 1 for name in names[:count]})
            fields = {"broker_id": PRETENDERS[0], "broker_epoch": bench.epochs[PRETENDERS[0]], "topics": topics}
            return messages.encode_request(ApiKey.ALTER_PARTITION, 3, **fields)

        return made

    for count in (10_000, len(names)):
        yield Case(ApiKey.ALTER_PARTITION, 3, f"{count} partitions", body(count), to_controller=True)


# The measurement


def codes(value: Any) -> dict[str, int]:
    """How often a decoded response has each error code."""
    found: dict[str, int] = {}

    def add(one: Any) -> None:
        if isinstance(one, tuple | list):
            for item in one:
                add(item)
            return
        for name in getattr(one, "__dataclass_fields__", ()):
            item = getattr(one, name)
            if name == "error_code":
                code = ErrorCode(int(item)).name
                found[code] = found.get(code, 0) + 1
            elif isinstance(item, tuple) or hasattr(item, "__dataclass_fields__"):
                add(item)

    add(value)
    return found


def measure(bench: Bench, case: Case) -> None:
    """Print the row of one request."""
    nodes = [bench.watched_controller()] if case.to_controller else [bench.watched_broker()]
    nodes += [bench.watched_controller()] if case.forwarded else []
    address = bench.controller if case.to_controller else bench.broker
    stalls, seconds, frame = [], [], b""
    for number in range(ROUNDS):
        request = framed(case.key, case.version, case.body(number))
        with closing(Wire(address)) as wire:

            def act(wire: Wire = wire, request: bytes = request) -> None:
                nonlocal frame
                began = time.perf_counter()
                wire.send_framed(request)
                frame = wire.receive()
                seconds.append(time.perf_counter() - began)

            stalls.append(measured(act, nodes))
    found = [worst(of) for of in zip(*stalls[1:], strict=True)]
    cpu = " / ".join(f"{one.cpu_ms:.0f}" for one in found)
    waits = " / ".join("; ".join(f"{wait:.0f}" for wait in one.waits_ms) for one in found)
    answers = ", ".join(f"{count} {name}" for name, count in codes(decoded(case.key, case.version, frame)).items())
    sizes = f"{len(request) / MIB:.1f}; {len(frame) / MIB:.1f}"
    print(f"| {case.title} | {sizes} | {max(seconds[1:]):.2f} | {cpu} | {waits} | {answers} |", flush=True)


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--compiled", action="store_true", help="measure the compiled build")
    options = parser.parse_args(arguments)
    form = COMPILED if options.compiled else PURE
    with (
        tempfile.TemporaryDirectory(prefix="bench-limits-") as folder,
        LocalCluster.start(folder, overrides=OVERRIDES, environment=chosen(form)) as cluster,
    ):
        check_runs(cluster.brokers[0].pid or 0, form)
        bench = Bench(cluster, options.topics)
        blank = {"num_partitions": PARTITIONS, "replication_factor": 1, "assignments": (), "configs": ()}
        bench.create([{"name": name, **blank} for name in bench.names])
        bench.until_led()
        bench.until_coordinating()
        bench.register_pretenders()
        print("| request | MiB sent; received | s | loop held, CPU ms | small requests, ms | errors |")
        print("|---|---|---|---|---|---|")
        for case in cases(bench):
            if not options.words or any(word.lower() in case.title.lower() for word in options.words):
                measure(bench, case)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
