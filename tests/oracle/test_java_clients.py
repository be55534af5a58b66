"""Kafka's Java producer and consumer against Milena, in test programs and in Kafka's tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.oracle.conftest import RECORDS
from tests.oracle.kafka import java, tool
from tests.oracle.programs import running
from tests.oracle.tools import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_PERFORMANCE,
    GROUPS,
    OFFSETS,
    PRODUCER_PERFORMANCE,
    TOPICS,
    TRANSACTIONS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    Tools,
)
from tests.wire.clients.transactional import Piped
from tests.wire.transaction_cases import (
    a_second_producer_fences_the_first,
    offsets_are_committed_with_the_records,
    only_committed_records_are_read,
)

Server = tuple[str, str]

PROGRAM: Final = Path(__file__).with_name("JavaClients.java")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def made(tools: Tools, server: Server, topic: str) -> str:
    """A topic of four partitions without retention limits."""
    tools(TOPICS, *server, "--create", "--topic", topic, "--partitions", "4", "--config", "retention.ms=-1")
    return topic


def program(*arguments: object) -> str:
    done = subprocess.run(java(str(PROGRAM), *map(str, arguments)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def java_member(server: Server, group: str, topic: str, *settings: str) -> list[str]:
    return java(str(PROGRAM), "consume", server[1], group, topic, "heartbeat.interval.ms=200", *settings)


# -- programs


def test_the_producer_is_idempotent_with_every_codec(tools: Tools, server: Server, made: str) -> None:
    count = RECORDS // 10
    lines_out = program("produce", server[1], made, count, *CODECS)
    assert lines_out.split() == [word for at, codec in enumerate(CODECS) for word in (codec, str(at * count))]
    consumer = Consumer({"bootstrap.servers": server[1], "group.id": "none", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(made, 0, 0)])
    for at, codec in enumerate(CODECS):
        for number, record in enumerate(consumer.consume(count, timeout=30)):
            assert record.offset() == at * count + number
            assert record.key() == (None if number % 5 == 0 else b"key-%d" % number)
            assert record.value() == (None if number % 7 == 0 else f"{codec}-{number}".encode())
            assert record.headers() == [("codec", codec.encode()), ("null", None)]
            assert record.timestamp()[1] == 1_700_000_000_000 + number
    consumer.close()
    producers = tools(TRANSACTIONS, *server, "describe-producers", "--topic", made, "--partition", "0")
    sequences = {int(line.split("\t")[3]) for line in producers.splitlines()[1:]}
    assert (len(producers.splitlines()) - 1, sequences) == (len(CODECS), {count - 1})


def test_a_consumer_group_reads_every_codec(server: Server, made: str) -> None:
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": server[1], "compression.type": codec})
        for number in range(40):
            headers: list[tuple[str, str | bytes | None]] = [("codec", codec.encode()), ("null", None)]
            key = f"key-{number}" if number % 5 else None
            producer.produce(made, f"{codec}-{number}", key, number % 4, timestamp=1_600_000_000_000, headers=headers)
        assert producer.flush(20) == 0
    with running(java_member(server, f"{made}-readers", made)) as member:
        found = member.records(40 * len(CODECS))
    assert sorted(fields[5] for fields in found) == sorted(f"{codec}-{n}" for codec in CODECS for n in range(40))
    for _, partition, _, timestamp, key, value, *rest in found:
        codec, _, at = value.partition("-")
        assert (int(partition), timestamp) == (int(at) % 4, "1600000000000")
        assert key == (f"key-{at}" if int(at) % 5 else "null")
        assert rest == [f"codec={codec}", "null=null"]


@pytest.fixture
def transactional() -> Piped:
    return Piped("Java", java(str(PROGRAM), "transact"))


def test_only_committed_records_are_read(transactional: Piped, server: Server, topic: str) -> None:
    only_committed_records_are_read(transactional, server[1], topic)


def test_offsets_are_committed_with_the_records(transactional: Piped, server: Server, topic: str) -> None:
    offsets_are_committed_with_the_records(transactional, server[1], topic)


def test_a_second_producer_fences_the_first(transactional: Piped, server: Server, topic: str) -> None:
    a_second_producer_fences_the_first(transactional, server[1], topic)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_java_and_kcat_share_a_group(tools: Tools, server: Server, made: str, assignor: str) -> None:
    group = f"{made}-mixed"
    java_class = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}[assignor]
    strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{java_class}"
    kcat = [
        "kcat", "-b", server[1], "-G", group, "-u", "-q", "-o", "beginning", "-f", "record\t%p\t%o\t%T\t%k\t%s\n",
        "-X", f"partition.assignment.strategy={assignor}", "-X", "heartbeat.interval.ms=200", made,
    ]  # fmt: skip
    producer = Producer({"bootstrap.servers": server[1]})

    def produce(first: int, last: int) -> set[str]:
        for number in range(first, last):
            producer.produce(made, str(number), partition=number % 4)
        assert producer.flush(20) == 0
        return set(map(str, range(first, last)))

    with running(java_member(server, group, made, strategy)) as old:
        old.line("assigned 4")
        with running(kcat) as new:
            old.line("assigned 2")
            sent = produce(0, 200)
            ours, theirs = old.records(100), new.records(100)
            assert {fields[5] for fields in ours + theirs} == sent
            partitions = [{fields[1] for fields in found} for found in (ours, theirs)]
            assert len(partitions[0]) == len(partitions[1]) == 2 and not partitions[0] & partitions[1]
            new.process.terminate()
        old.line("assigned 4")
        sent = produce(200, 240)
        assert {fields[5] for fields in old.records(40)} == sent
    described = tools(GROUPS, *server, "--describe", "--group", group, "--state")
    assert re.search(r"Empty\s+0\s*$", described)


def test_static_members_rejoin_and_are_removed(tools: Tools, server: Server, made: str) -> None:
    group, settings = f"{made}-static", ("group.instance.id=one", "session.timeout.ms=30000")
    described = ("--describe", "--group", group, "--members")
    members = []
    for _ in range(2):
        with running(java_member(server, group, made, *settings)) as member:
            member.line("assigned 4")
            members.append(tools(GROUPS, *server, *described).splitlines()[-1].split())
    # The second member replaced the first, under a new member id.
    assert [fields[2] for fields in members] == ["one", "one"] and members[0][1] != members[1][1]
    program("remove", server[1], group, "one")
    assert "has no active members" in tools.run(GROUPS, *server, *described).err


# -- clients within tools


def test_console_producer_and_consumer(tools: Tools, server: Server, made: str) -> None:
    lines = [f"codec:{codec}\tkey {number}\tvalue {number} ä" for codec in CODECS for number in range(8)]
    properties = [word for one in ("parse.key=true", "parse.headers=true") for word in ("--reader-property", one)]
    for codec in CODECS:
        lines_out = [line for line in lines if line.startswith(f"codec:{codec}\t")]
        codec_option = ("--compression-codec", codec)
        tools(CONSOLE_PRODUCER, *server, "--topic", made, *codec_option, *properties, stdin="\n".join(lines_out) + "\n")
    shown = [word for one in ("print.key=true", "print.headers=true") for word in ("--formatter-property", one)]
    reader = ("--topic", made, "--group", f"{made}-console", "--from-beginning", "--timeout-ms", "20000")
    for half in (15, 25):
        read = tools.run(CONSOLE_CONSUMER, *server, *reader, "--max-messages", str(half), *shown)
        found = read.out.splitlines()
        assert f"Processed a total of {half} messages" in read.err
        assert len(found) == half and set(found) <= set(lines)
        lines = [line for line in lines if line not in found]
    assert lines == []


def test_verifiable_producer_and_consumer(tools: Tools, server: Server, made: str) -> None:
    limit = ("--max-messages", str(RECORDS))
    sent = tool(VERIFIABLE_PRODUCER, *server, "--topic", made, *limit, "--acks", "-1", "--value-prefix", "7")
    events = [json.loads(line) for line in sent.splitlines() if line.startswith("{")]
    successes = [event for event in events if event["name"] == "producer_send_success"]
    acknowledged = {(event["partition"], event["offset"]) for event in successes}
    assert len(acknowledged) == len(successes) == RECORDS
    group = ("--group-id", f"{made}-verifiers", "--reset-policy", "earliest", "--verbose")
    read = tool(VERIFIABLE_CONSUMER, *server, "--topic", made, *group, *limit)
    events = [json.loads(line) for line in read.splitlines() if line.startswith("{")]
    data = [event for event in events if event["name"] == "record_data"]
    assert {(event["partition"], event["offset"]) for event in data} == acknowledged
    assert {event["value"] for event in data} == {event["value"] for event in successes}
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits and all(event["success"] for event in commits)
    shown = tools(GROUPS, *server, "--describe", "--group", f"{made}-verifiers", "--offsets")
    lags = {line.split()[5] for line in shown.splitlines() if line.startswith(f"{made}-verifiers")}
    assert lags == {"0"}


def test_the_performance_tool_writes_transactions(tools: Tools, server: Server, made: str) -> None:
    load = ("--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
    transactions = ("--transactional-id", f"{made}-id", "--transaction-duration-ms", "50")
    assert f"{RECORDS} records sent" in tools(PRODUCER_PERFORMANCE, *server, "--topic", made, *load, *transactions)
    consumed = Consumer(
        {
            "bootstrap.servers": server[1],
            "group.id": f"{made}-group",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumed.subscribe([made])
    assert len(consumed.consume(RECORDS, timeout=30)) == RECORDS
    consumed.close()
    described = tools(TRANSACTIONS, *server, "describe", "--transactional-id", f"{made}-id").splitlines()
    assert described[1].split("\t")[4].strip() in ("CompleteCommit", "PrepareCommit")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_performance_tools(tools: Tools, server: Server, made: str, acks: str) -> None:
    load = ("--num-records", str(RECORDS), "--record-size", "1000", "--throughput", "-1")
    properties = ("--command-property", f"acks={acks}")
    lines_out = tools(PRODUCER_PERFORMANCE, *server, "--topic", made, *load, *properties)
    assert f"{RECORDS} records sent" in lines_out
    ends = [int(line.rpartition(":")[2]) for line in tools(OFFSETS, *server, "--topic", made).split()]
    assert sum(ends) == RECORDS
    read = tools(CONSUMER_PERFORMANCE, *server, "--topic", made, "--num-records", str(RECORDS))
    assert re.search(rf"^[^,]+, [^,]+, [^,]+, [^,]+, {RECORDS},", read, re.MULTILINE)
