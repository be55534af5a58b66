"""Responses to DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.fixtures.own_keys import OWN_KEYS
from tests.oracle.differential.pair import Answers, Pair, eventually, versions

TOPIC: Final = 2
BROKER: Final = 4
LOGGER: Final = 8
METRICS: Final = 16
GROUP: Final = 32
DEFAULT: Final = 5
"""The config source of a value that is not set: DEFAULT_CONFIG."""
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_THE_NODE: Final = frozenset({
    "node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "process.roles",
    "controller.quorum.voters", "listener.security.protocol.map", "controller.quorum.bootstrap.servers",
})  # fmt: skip
"""Broker keys whose values must differ between the nodes."""
RATE: Final = "leader.replication.throttled.rate"
"""A key that exists only as dynamic configuration."""


def entries(answer: Mapping[str, Any], index: int = 0) -> dict[str, Any]:
    """Return a resource's config entries by name."""
    return {one["name"]: one for one in answer["results"][index]["configs"]}


def describe(pair: Pair, version: int, *resources: tuple[int, str, Sequence[str] | None], **fields: bool) -> Answers:
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    wanted: dict[str, Any] = {"include_synonyms": True, "include_documentation": False, **fields}
    return pair.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=asked, **wanted)


def drop_own_keys(answers: Answers) -> None:
    for result in answers.milena["results"]:
        result["configs"] = [one for one in result["configs"] if one["name"] not in OWN_KEYS]


def same(answers: Answers, without: Iterable[str] = ()) -> None:
    """Assert that both are equal, except for keys that Milena does not have, and those in ``without``."""
    drop_own_keys(answers)
    kafka, milena = answers.both
    for theirs, ours in zip(kafka["results"], milena["results"], strict=True):
        assert {one["name"] for one in ours["configs"]} <= {one["name"] for one in theirs["configs"]}
        known = {one["name"] for one in ours["configs"]}
        theirs["configs"] = [one for one in theirs["configs"] if one["name"] in known and one["name"] not in without]
        ours["configs"] = [one for one in ours["configs"] if one["name"] not in without]
    answers.check("DescribeConfigs")


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
class TestDescribeConfigs:
    def test_of_a_topic(self, pair: Pair, topic: str, version: int) -> None:
        pair.create(topic, retention_ms=5000, cleanup_policy="compact,delete", max_message_bytes=77)
        for synonyms in (True, False):
            for documentation in (True, False):
                asked = {"include_synonyms": synonyms, "include_documentation": documentation}
                answers = describe(pair, version, (TOPIC, topic, None), **asked)
                drop_own_keys(answers)
                kafka, milena = (entries(answer) for answer in answers.both)
                assert set(milena) == set(kafka)
                assert all(bool(milena[name].get("documentation")) == documentation for name in milena if version >= 3)
                answers.check("DescribeConfigs of a topic")

    def test_keys(self, pair: Pair, topic: str, version: int) -> None:
        pair.create(topic)
        for keys in (["retention.ms"], ["nothing.such"], ["retention.ms", "segment.bytes", "x"], []):
            describe(pair, version, (TOPIC, topic, keys)).check(f"DescribeConfigs {keys}")
        for keys in (["log.retention.ms"], ["nothing.such"], ["num.partitions", "x"]):
            same(describe(pair, version, (BROKER, "1", keys)))

    def test_of_a_broker(self, pair: Pair, version: int) -> None:
        same(describe(pair, version, (BROKER, "1", None)), OF_THE_NODE)
        same(describe(pair, version, (BROKER, "1", None), include_synonyms=False), OF_THE_NODE)
        describe(pair, version, (BROKER, "", None)).check("DescribeConfigs of all brokers")

    def test_wrong_resources(self, pair: Pair, version: int) -> None:
        for resource in (
            (TOPIC, "nowhere"), (TOPIC, ""), (TOPIC, "a b"), (BROKER, "9"), (BROKER, "x"), (BROKER, "-1"),
            (LOGGER, "9"), (LOGGER, ""), (LOGGER, "x"), (METRICS, ""), (METRICS, "x"), (GROUP, ""), (GROUP, "x"),
            (0, "x"), (1, "x"), (99, "x"), (-1, "x"),
        ):  # fmt: skip
            answers = describe(pair, version, (*resource, None))
            for answer in answers.both:
                if answer != "the connection was closed":
                    answer["results"][0]["configs"] = []
            answers.check(f"DescribeConfigs {resource}")
        describe(pair, version).check("DescribeConfigs of nothing")
        twice = describe(pair, version, (TOPIC, "nowhere", None), (TOPIC, "nowhere", None), (BROKER, "x", None))
        twice.check("DescribeConfigs twice")


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_the_root_logger(pair: Pair, version: int) -> None:
    """The names of all other loggers differ."""
    answers = describe(pair, version, (LOGGER, "1", ["root"]))
    for answer in answers.both:
        answer["results"][0]["configs"][0]["value"] = "a level"
    answers.check("DescribeConfigs of a logger")


class Alter:
    """Both requests that change configurations: IncrementalAlterConfigs and AlterConfigs."""

    def __init__(self, pair: Pair, version: int, *, validate_only: bool = False) -> None:
        self.pair = pair
        self.version = version
        self.validate_only = validate_only

    def incrementally(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> None:
        configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
        resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
        asked: dict[str, Any] = {"resources": resources, "validate_only": self.validate_only}
        self.pair.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, self.version, **asked)

    def wholly(self, kind: int, name: str, **configs: str | None) -> None:
        values = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        resources = [{"resource_type": kind, "resource_name": name, "configs": values}]
        asked: dict[str, Any] = {"resources": resources, "validate_only": self.validate_only}
        self.pair.same(ApiKey.ALTER_CONFIGS, self.version, **asked)

    def see(self, kind: int, name: str) -> None:
        """Describe the values that are set, when both brokers have applied the change."""
        read = describe(self.pair, 4, (kind, name, None), include_synonyms=False)
        given = [
            {key: one["value"] for key, one in entries(answer).items() if one["config_source"] in (1, 2, 3)}
            for answer in read.both
        ]
        assert given[0] == given[1]


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_changes_of_a_topic(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    alter = Alter(pair, version)
    for changes in (
        [("retention.ms", SET, "1000")],
        [("retention.ms", SET, "1000"), ("segment.bytes", SET, "2000000")],
        [("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, "7")],
        [("retention.ms", DELETE, None)],
        [("segment.bytes", SET, "x")],
        [("segment.bytes", SET, None)],
        [("segment.bytes", SET, "1")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact,delete")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "nothing")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", APPEND, "x")],
        [("cleanup.policy", SET, "delete")],
        [("retention.ms", APPEND, "1")],
        [("retention.ms", SUBTRACT, "1")],
        [("leader.replication.throttled.replicas", APPEND, "0:1")],
        [("leader.replication.throttled.replicas", APPEND, "1:1,2:1")],
        [("leader.replication.throttled.replicas", SUBTRACT, "1:1")],
        [("leader.replication.throttled.replicas", APPEND, "x")],
        [("leader.replication.throttled.replicas", SET, "0:1,")],
        [("leader.replication.throttled.replicas", SET, ",0:1,,1:1")],
        [("leader.replication.throttled.replicas", SET, "*,")],
        [("leader.replication.throttled.replicas", SET, "*,0:1")],
        [("leader.replication.throttled.replicas", SET, ",")],
        [("leader.replication.throttled.replicas", SET, " 0:1 , 1:1")],
        [("leader.replication.throttled.replicas", SET, "0:1,x")],
        [("nothing.such", SET, "1")],
        [("nothing.such", DELETE, None)],
        [("nothing.such", APPEND, "1")],
        [("flush.ms", SET, "1"), ("flush.ms", SET, "2")],
        [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)],
        [("flush.ms", SET, "1"), ("segment.ms", SET, "x")],
        [("max.message.bytes", SET, "")],
        [("max.message.bytes", SET, " 17 ")],
        [("min.insync.replicas", SET, "5")],
        [("compression.type", SET, "GZIP")],
        [("unclean.leader.election.enable", SET, "true")],
        [("", SET, "1")],
        [],
    ):
        Alter(pair, version, validate_only=True).incrementally(TOPIC, topic, *changes)
        alter.incrementally(TOPIC, topic, *changes)
    eventually(lambda: alter.see(TOPIC, topic))


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_changes_of_other_resources(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    alter = Alter(pair, version, validate_only=True)
    one = ("retention.ms", SET, "1000")
    for kind, name in (
        (TOPIC, "nowhere"), (TOPIC, ""), (TOPIC, "a b"), (BROKER, "9"), (BROKER, "x"), (BROKER, "-1"), (LOGGER, "9"),
        (LOGGER, "1"), (LOGGER, ""), (METRICS, ""), (GROUP, ""), (0, "x"), (99, "x"),
    ):  # fmt: skip
        alter.incrementally(kind, name, one)
        alter.incrementally(kind, name)
    for name in ("", "1"):
        for change in (
            ("log.retention.ms", SET, "1000"), ("log.retention.ms", SET, "x"), ("node.id", SET, "7"),
            ("num.io.threads", SET, "9"), ("num.io.threads", SET, "0"), ("nothing.such", SET, "1"),
            ("log.retention.ms", DELETE, None), ("num.partitions", SET, "9"), ("log.cleanup.policy", APPEND, "compact"),
            ("log.cleanup.policy", SUBTRACT, "delete"), ("log.retention.ms", APPEND, "5"), ("max.connections", SET, "9"),  # noqa: E501
            ("message.max.bytes", SET, "-1"), ("advertised.listeners", SET, "PLAINTEXT://x:1"),
            ("listeners", SET, "x"), ("min.insync.replicas", SET, "1"), ("compression.type", SET, "x"),
        ):  # fmt: skip
            alter.incrementally(BROKER, name, change)
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
    pair.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[resource, resource], validate_only=True)
    pair.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[], validate_only=True)
    other = {"resource_type": TOPIC, "resource_name": "nowhere", "configs": []}
    pair.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[resource, other], validate_only=True)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_changes_of_the_whole(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, flush_ms=7)
    alter = Alter(pair, version)
    choices: list[dict[str, str | None]] = [
        {"retention_ms": "5"}, {"retention_ms": "x"}, {"retention_ms": None}, {}, {"nothing_such": "1"},
        {"cleanup_policy": "compact", "segment_ms": "9"}, {"cleanup_policy": "x"}, {"retention_ms": ""},
    ]  # fmt: skip
    for configs in choices:
        Alter(pair, version, validate_only=True).wholly(TOPIC, topic, **configs)
        alter.wholly(TOPIC, topic, **configs)
    alter.wholly(TOPIC, topic, segment_ms="99")
    eventually(lambda: alter.see(TOPIC, topic))
    check = Alter(pair, version, validate_only=True)
    for kind, name in (
        (TOPIC, "nowhere"), (TOPIC, ""), (BROKER, "9"), (BROKER, "x"), (LOGGER, "1"), (METRICS, ""),
        (GROUP, ""), (0, "x"), (99, "x"), (BROKER, "1"), (BROKER, ""),
    ):  # fmt: skip
        check.wholly(kind, name, num_io_threads="9")
        check.wholly(kind, name)
    twice = [{"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "flush.ms", "value": "1"}] * 2}]
    pair.same(ApiKey.ALTER_CONFIGS, version, resources=twice, validate_only=True)


def test_the_sources_of_a_value(pair: Pair, topic: str) -> None:
    """A topic's value precedes a broker's, that of all brokers, the static one and the default; so do the synonyms."""
    lag, kept = "log.cleaner.min.compaction.lag.ms", "log.cleaner.delete.retention.ms"
    pair.create(topic, retention_ms=123)
    alter = Alter(pair, 1)
    alter.incrementally(BROKER, "1", (lag, SET, "50"), (kept, SET, "9"))
    alter.incrementally(BROKER, "", (kept, SET, "8"), ("log.retention.ms", SET, "-1"))
    alter.incrementally(BROKER, "1", (RATE, SET, "7"))
    alter.incrementally(BROKER, "", (RATE, SET, "8"))

    def look() -> None:
        keys = ["retention.ms", "delete.retention.ms", "min.compaction.lag.ms", "segment.bytes"]
        describe(pair, 4, (TOPIC, topic, keys)).check("synonyms of a topic")
        keys = [kept, "log.retention.ms", "log.retention.hours", lag, RATE]
        describe(pair, 4, (BROKER, "1", keys)).check("synonyms of a broker")
        describe(pair, 4, (BROKER, "", None)).check("synonyms of all brokers")

    eventually(look)
    alter.incrementally(BROKER, "1", (lag, DELETE, None), (kept, DELETE, None), (RATE, DELETE, None))
    alter.incrementally(BROKER, "", (kept, DELETE, None), ("log.retention.ms", DELETE, None), (RATE, DELETE, None))

    def look_again() -> None:
        for answer in describe(pair, 4, (BROKER, "1", [kept, lag])).both:
            assert {one["config_source"] for one in answer["results"][0]["configs"]} == {DEFAULT}

    eventually(look_again)


OF_GROUPS: Final[list[list[tuple[str, int, str | None]]]] = [
    [("consumer.session.timeout.ms", SET, "50000")],
    [("consumer.session.timeout.ms", SET, "44999")], [("consumer.session.timeout.ms", SET, "60001")],
    [("consumer.session.timeout.ms", SET, "x")], [("consumer.session.timeout.ms", DELETE, None)],
    [("consumer.heartbeat.interval.ms", SET, "5000")], [("consumer.heartbeat.interval.ms", SET, "15001")],
    [("consumer.assignment.interval.ms", SET, "0")], [("consumer.assignment.interval.ms", SET, "-1")],
    [("consumer.assignment.interval.ms", SET, "15001")],
    [("share.auto.offset.reset", SET, "earliest"), ("share.isolation.level", SET, "read_committed")],
    [("share.auto.offset.reset", SET, "by_duration:PT1H")], [("share.auto.offset.reset", SET, "by_duration:P1DT2.5S")],
    [("share.auto.offset.reset", SET, "by_duration:1H")], [("share.auto.offset.reset", SET, "by_duration:P")],
    [("share.auto.offset.reset", SET, "by_duration:-PT1H")], [("share.auto.offset.reset", SET, "by_duration")],
    [("share.auto.offset.reset", SET, "none")], [("share.auto.offset.reset", SET, "EARLIEST")],
    [("share.isolation.level", SET, "READ_COMMITTED")], [("share.renew.acknowledge.enable", SET, "False")],
    [("share.renew.acknowledge.enable", SET, "yes")], [("share.delivery.count.limit", SET, "1")],
    [("share.delivery.count.limit", SET, "11")], [("share.delivery.count.limit", SET, "10")],
    [("share.record.lock.duration.ms", SET, "14999")], [("share.partition.max.record.locks", SET, "4001")],
    [("streams.num.standby.replicas", SET, "2")], [("streams.num.standby.replicas", SET, "3")],
    [("streams.initial.rebalance.delay.ms", SET, "0")], [("streams.initial.rebalance.delay.ms", SET, "-1")],
    [("no.such", SET, "1")], [("no.such", DELETE, None)], [("share.isolation.level", APPEND, "x")], [],
]  # fmt: skip
OF_METRICS: Final[list[list[tuple[str, int, str | None]]]] = [
    [("metrics", SET, "org.apache.kafka.,other")], [("metrics", SET, "")], [("metrics", SET, "*")],
    [("metrics", SET, "a,a")], [("metrics", SET, "a,,b")], [("metrics", APPEND, "c")], [("metrics", DELETE, None)],
    [("interval.ms", SET, "100"), ("match", SET, "client_id=app.*,client_software_name=java")],
    [("interval.ms", SET, "99")], [("interval.ms", SET, "3600001")], [("interval.ms", SET, "x")],
    [("match", SET, "client_id")], [("match", SET, "client_id=")], [("match", SET, "client_id=a=b")],
    [("match", SET, "client_id=a=")], [("match", SET, "unknown=1")], [("match", SET, "client_id=(")],
    [("match", SET, r"client_id=\p{L}+")], [("match", SET, " client_id = a ")], [("match", SET, "")],
    [("no.such", SET, "1")], [("no.such", DELETE, None)], [],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "changes"), [(GROUP, OF_GROUPS), (METRICS, OF_METRICS)])
def test_changes_of_groups_and_client_metrics(
    pair: Pair, topic: str, kind: int, changes: list[list[tuple[str, int, str | None]]]
) -> None:
    for number, some in enumerate(changes):
        Alter(pair, 1, validate_only=True).incrementally(kind, f"{topic}-{number}", *some)
        Alter(pair, 1).incrementally(kind, topic, *some)
        Alter(pair, 0).incrementally(kind, "", *some)
        if all(op != APPEND for _, op, _ in some):
            values = {key.replace(".", "_"): value for key, _, value in some}
            Alter(pair, 2, validate_only=True).wholly(kind, topic, **values)
    for keys in (None, ["interval.ms", "share.auto.offset.reset", "no.such"]):
        for synonyms in (True, False):
            eventually(lambda: same(describe(pair, 4, (kind, topic, keys), include_synonyms=synonyms)))  # noqa: B023
    eventually(lambda: listed(pair, kind))
    Alter(pair, 2).wholly(kind, topic)
    eventually(lambda: listed(pair, kind))


def listed(pair: Pair, kind: int) -> None:
    pair.same(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[kind])
    if kind == METRICS:
        pair.same(ApiKey.LIST_CONFIG_RESOURCES, 0)


def test_an_unknown_operation_fails_in_kafka(pair: Pair, topic: str) -> None:
    pair.create(topic)
    for operation in (4, -1):
        configs = [{"name": "flush.ms", "config_operation": operation, "value": "1"}]
        resources = [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]
        answers = pair.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
        codes = [answer["responses"][0]["error_code"] for answer in answers.both]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST]
