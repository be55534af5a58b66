"""`milena topic`, `group`, `produce` and `consume`: their effects and their error messages."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from milena.testing.local_cluster import LIMIT, MILENA, LocalCluster
from milena.up.ports import free
from tests.wire.command import milena, refused
from tests.wire.waiting import Deadline


@pytest.fixture
def to(cluster: LocalCluster) -> tuple[str, str]:
    return ("-b", cluster.bootstrap)


def test_a_topic_is_created_changed_and_deleted(to: tuple[str, str], topic: str) -> None:
    config = ("--config", "retention.ms=86400000")
    assert milena("topic", "create", topic, "--partitions", "2", *config, *to).out == f"{topic}: 2 partitions\n"
    assert milena("topic", "create", topic, "--if-not-exists", "--quiet", *to).out == ""
    assert f"{topic:<40}     2 partitions\n" in milena("topic", "list", *to).out
    milena("topic", "alter", topic, "--partitions", "4", "--config", "segment.bytes=1048576", *to)
    head, columns, *rows = milena("topic", "describe", topic, *to).out.splitlines()
    assert head.split()[0] == topic
    assert head.split()[3:] == ["partitions", "4", "retention.ms=86400000", "segment.bytes=1048576"]
    assert columns.split() == ["partition", "leader", "epoch", "replicas", "isr", "elr"]
    for number, row in enumerate(rows):
        partition, leader, epoch, replicas, isr, elr = row.split()
        assert (partition, epoch, elr) == (str(number), "0", "-")
        assert leader == replicas.split(",")[0]
        assert sorted(isr.split(",")) == sorted(replicas.split(","))
    milena("topic", "alter", topic, "--delete-config", "retention.ms", *to)
    assert "retention.ms" not in milena("topic", "describe", topic, *to).out
    milena("topic", "delete", topic, *to)
    assert topic not in milena("topic", "list", *to).out
    milena("topic", "delete", topic, "--if-exists", *to)


def test_a_change_fails_soon_if_no_controller_answers(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, topics=["t"]) as cluster:
        cluster.pause(cluster.controller.id)
        for change in (("topic", "create", "new"), ("reassign", "cancel", "--all")):
            said = refused(*change, "-b", cluster.bootstrap)
            assert said == "no controller has answered within 2 s, so nothing was changed"
        cluster.resume(cluster.controller.id)
        milena("topic", "create", "new", "-b", cluster.bootstrap)


def test_internal_topics_are_listed_only_with_an_option(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, *to)
    milena("produce", topic, *to, stdin="one\n")
    milena("consume", topic, "--group", topic, "--from-beginning", "--max", "1", *to)
    assert "__consumer_offsets" not in milena("topic", "list", *to).out
    assert "__consumer_offsets" in milena("topic", "list", "--internal", *to).out


def test_refused_records_are_a_one_line_error(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, "--partitions", "1", "--config", "max.message.bytes=500", *to)
    lines = f"{'x' * 450}\n" * 500
    assert "MESSAGE_TOO_LARGE" in refused("produce", topic, "--compression", "none", *to, stdin=lines)


def test_internal_topics_are_deleted_only_with_force(milena_start: Callable[..., LocalCluster]) -> None:
    to = ("-b", milena_start().bootstrap)
    milena("topic", "create", "__remote_log_metadata", *to)
    milena("topic", "create", "own", *to)
    assert refused("topic", "delete", "own", "__remote_log_metadata", *to) == (
        "topic __remote_log_metadata holds the metadata of the remote tier, which cannot be read without it; "
        "--force deletes it anyway"
    )
    for name in ("__consumer_offsets", "__transaction_state"):
        assert refused("topic", "delete", name, "--if-exists", *to).endswith("; --force deletes it anyway")
    assert milena("topic", "list", "--internal", *to).out.count("partition") == 2
    milena("topic", "delete", "own", "__remote_log_metadata", "--force", *to)
    assert milena("topic", "list", "--internal", *to).out == ""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_line_of_input_is_a_record(to: tuple[str, str], topic: str, codec: str) -> None:
    milena("topic", "create", topic, *to)
    lines = "".join(f"line {number} ä\n" for number in range(200)) + "the last one has no newline"
    milena("produce", topic, "--compression", codec, *to, stdin=lines)
    assert milena("consume", topic, "--from-beginning", "--exit", *to).out == lines + "\n"


def test_keys_headers_and_nulls_are_read_and_printed_also_as_json(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, "--partitions", "3", *to)
    marks = ("-K", ":", "-H", "origin=test", "-H", "empty=", "--null", "--acks", "1")
    milena("produce", topic, *marks, "--partition", "2", *to, stdin="k:v:w\nno key\ngone:\n")
    found = milena("consume", topic, "--partition", "2", "--offset", "0", "--exit", "--json", *to).out.splitlines()
    records = [json.loads(line) for line in found]
    assert [(record["key"], record["value"]) for record in records] == [("k", "v:w"), (None, "no key"), ("gone", None)]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert {record["partition"] for record in records} == {2}
    assert all(record["headers"] == [["origin", "test"], ["empty", ""]] for record in records)
    assert all(record["topic"] == topic and record["timestamp"] > 0 for record in records)
    text = milena("consume", topic, "--partition", "2", "--offset", "1", "--max", "1", "-K", "|", *to).out
    assert text == "|no key\n"


def test_a_group_continues_from_its_offsets_and_can_be_described(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, *to)
    milena("produce", topic, *to, stdin="1\n2\n3\n4\n5\n")
    group = ("--group", topic)
    assert milena("consume", topic, *group, "--from-beginning", "--max", "2", *to).out == "1\n2\n"
    assert milena("consume", topic, *group, "--max", "2", *to).out == "3\n4\n"
    assert f"{topic:<40}Empty\n" in milena("group", "list", *to).out
    head, columns, row = milena("group", "describe", topic, *to).out.splitlines()
    assert head.split()[:2] == [topic, "Empty"]
    assert columns.split() == ["topic", "partition", "committed", "end", "lag"]
    assert row.split() == [topic, "0", "4", "5", "1"]


def test_a_consumer_prints_records_as_they_arrive_and_ends_on_ctrl_c(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, *to)
    command = [*MILENA, "consume", topic, "--from-beginning", *to]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        milena("produce", topic, *to, stdin="now\n")
        assert consumer.stdout.readline() == "now\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.communicate(timeout=LIMIT) == ("", "")
    assert consumer.returncode == 130


def test_a_producer_sends_each_line_as_it_arrives_and_ends_on_ctrl_c(to: tuple[str, str], topic: str) -> None:
    milena("topic", "create", topic, *to)
    command = [*MILENA, "produce", topic, *to]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None
        producer.stdin.write("typed\n")
        producer.stdin.flush()
        assert milena("consume", topic, "--from-beginning", "--max", "1", *to).out == "typed\n"
        producer.send_signal(signal.SIGINT)
        assert producer.wait(LIMIT) == 130  # although its input is still open
        assert producer.stderr is not None
        assert producer.stderr.read() == ""


def test_a_reader_that_closes_the_pipe_early_causes_no_error(to: tuple[str, str], topic: str) -> None:
    """As in `milena consume t | head -1`."""
    milena("topic", "create", topic, *to)
    milena("produce", topic, *to, stdin="line\n" * 500)
    command = [*MILENA, "consume", topic, "--from-beginning", *to]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consumer:
        assert consumer.stdout is not None
        Deadline(LIMIT).readable(consumer.stdout.fileno(), lambda: "nothing was printed")
        assert os.read(consumer.stdout.fileno(), 5) == b"line\n"
        consumer.stdout.close()
        milena("produce", topic, *to, stdin="line\n" * 500)
        assert consumer.wait(LIMIT) == 0
        assert consumer.stderr is not None
        assert consumer.stderr.read() == b""


MISTAKES = [
    ("topic create a~b", 1, "topic a~b: The topic name 'a~b' has other characters than"),
    ("topic create {topic}", 1, "topic {topic}: Topic '{topic}' already exists. (TOPIC_ALREADY_EXISTS)"),
    (
        "topic create new --partitions 0",
        1,
        "topic new: The number of partitions must be positive. (INVALID_PARTITIONS)",
    ),
    ("topic create new --partitions few", 2, "--partitions few: not a whole number"),
    ("topic create new --replicas 9", 1, "topic new: Cannot place 9 replica(s): only 3 broker(s) can take replicas."),
    ("topic create new --config retention=1", 1, "topic new: Unknown topic config name: retention (INVALID_CONFIG)"),
    ("topic create new --config retention.ms=x", 1, "topic new: Invalid value x for configuration retention.ms: Not a"),
    ("topic create new --config retention.ms", 2, "--config retention.ms: write it as key=value"),
    ("topic create", 2, "milena topic create needs TOPIC: the topic's name"),
    ("topic creat x", 2, "no command `topic creat` (did you mean create?)"),
    ("topic describe missing", 1, "topic missing (UNKNOWN_TOPIC_OR_PARTITION)"),
    ("topic delete missing", 1, "topic missing: Unknown topic or partition. (UNKNOWN_TOPIC_OR_PARTITION)"),
    ("topic delete", 2, "milena topic delete needs the names of topics"),
    (
        "topic alter missing --partitions 3",
        1,
        "topic missing: Unknown topic or partition. (UNKNOWN_TOPIC_OR_PARTITION)",
    ),
    (
        "topic alter missing --config retention.ms=1",
        1,
        "topic missing: Unknown topic or partition. (UNKNOWN_TOPIC_OR_PARTITION)",
    ),
    (
        "topic alter {topic} --partitions 1",
        1,
        "topic {topic}: Topic '{topic}' has 1 partition(s) already; 1 is not an increase",
    ),
    (
        "topic alter {topic} --config retention=1",
        1,
        "topic {topic}: Unknown topic config name: retention (INVALID_CONFIG)",
    ),
    (
        "topic alter {topic} --delete-config retention.m",
        1,
        "--delete-config retention.m: no such topic configuration (did you mean retention.ms?)",
    ),
    ("topic alter {topic}", 2, "milena topic alter needs --partitions, --config or --delete-config"),
    ("group describe missing", 1, "Group missing not found. (GROUP_ID_NOT_FOUND)"),
    ("group lst", 2, "no command `group lst` (did you mean list?)"),
    ("produce {topic} --partition 7", 1, "{topic}-7 does not exist (UNKNOWN_TOPIC_OR_PARTITION)"),
    ("produce a~b", 1, "topic 'a~b' (INVALID_TOPIC_EXCEPTION)"),
    ("produce {topic} --acks 2", 2, "--acks 2: one of all, 1, 0"),
    ("produce {topic} --compression rar", 2, "--compression rar: one of none, gzip, snappy, lz4, zstd"),
    ("consume missing", 1, "topic 'missing' (UNKNOWN_TOPIC_OR_PARTITION)"),
    ("consume missing --group g", 1, "topic 'missing' (UNKNOWN_TOPIC_OR_PARTITION)"),
    ("consume {topic} --partition 7 --exit", 1, "{topic}-7 does not exist (UNKNOWN_TOPIC_OR_PARTITION)"),
    ("consume {topic} --offset 3", 2, "--offset needs --partition"),
    ("consume {topic} --partition 0 --offset -3", 2, "--offset -3: not a number of at least 0"),
    ("consume {topic} --group g --exit", 2, "--group cannot be combined with --partition or --exit"),
    ("consume {topic} --max", 2, "--max needs a value: --max N"),
    ("comsume {topic}", 2, "no command comsume (did you mean consume?); `milena --help` lists them"),
    ("log dump /no/where.log", 1, "/no/where.log: No such file or directory"),
    ("log dump /", 1, "/: Is a directory"),
    ("log dump /dev/null", 1, "/dev/null: the name does not end like a known kind of file"),
    ("consume {topic} --partition 0 --offset 9", 1, "--offset 9: {topic}-0 begins at 0 and ends before 0"),
    ("log dmp x", 2, "no command `log dmp` (did you mean dump?)"),
]


@pytest.fixture(scope="module")
def existing(cluster: LocalCluster) -> str:
    milena("topic", "create", "mistakes", "--partitions", "1", "-b", cluster.bootstrap)
    return "mistakes"


@pytest.mark.parametrize(("line", "code", "sentence"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_a_one_line_error(
    cluster: LocalCluster, existing: str, line: str, code: int, sentence: str
) -> None:
    words = line.format(topic=existing).split()
    if words[0] in ("topic", "group", "produce", "consume"):
        words[2:2] = ["-b", cluster.bootstrap] if words[0] in ("topic", "group") else []
        words[1:1] = ["-b", cluster.bootstrap] if words[0] in ("produce", "consume") else []
    assert refused(*words, code=code, stdin="x\n").startswith(sentence.format(topic=existing))


def test_a_cluster_that_does_not_answer_is_a_one_line_error() -> None:
    one, two = free("127.0.0.1", 2)
    assert refused("topic", "list", "-b", f"127.0.0.1:{one}") == (
        f"cannot connect to 127.0.0.1:{one}: Connection refused"
    )
    both = refused("topic", "list", "-b", f"127.0.0.1:{one},127.0.0.1:{two}")
    assert both.startswith(f"no node answers at 127.0.0.1:{one}, 127.0.0.1:{two}; last error: cannot connect to")
    assert refused("topic", "list", "-b", "nowhere.invalid:9092").startswith("cannot resolve 'nowhere.invalid': ")
    assert refused("topic", "list", "-b", "localhost", code=2) == (
        "--bootstrap-server localhost: 'localhost' is not of the form HOST:PORT"
    )


def test_bootstrap_servers_are_read_from_the_environment(cluster: LocalCluster, topic: str) -> None:
    refuses = free("127.0.0.1", 1)[0]
    known = {**os.environ, "MILENA_BOOTSTRAP": f"127.0.0.1:{refuses},{cluster.bootstrap}"}
    milena("topic", "create", topic, env=known)
    milena("produce", topic, stdin="x\n", env=known)
    assert milena("consume", topic, "--from-beginning", "--exit", env=known).out == "x\n"
    assert refused("topic", "list", "-b", f"127.0.0.1:{refuses}", env=known).startswith("cannot connect to ")
    assert refused("topic", "list", env={**os.environ, "MILENA_BOOTSTRAP": "here"}, code=2) == (
        "MILENA_BOOTSTRAP here: 'here' is not of the form HOST:PORT"
    )


def test_without_options_all_brokers_of_a_default_cluster_are_tried() -> None:
    unset = {name: value for name, value in os.environ.items() if name != "MILENA_BOOTSTRAP"}
    shown = milena("topic", "list", "--help", env=unset).out
    assert "MILENA_BOOTSTRAP in the environment (default: 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094)" in shown


def test_a_server_that_is_no_kafka_broker_is_a_one_line_error() -> None:
    """The server accepts connections, and closes each after the first bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [*MILENA, "topic", "list", "-b", f"127.0.0.1:{port}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking:
            connection, _ = server.accept()
            connection.recv(4096)
            connection.close()
            errors = asking.communicate(timeout=LIMIT)[1]
    assert asking.returncode == 1
    assert errors.startswith(f"milena: cannot connect to 127.0.0.1:{port}: ")
    assert errors.count("\n") == 1


def test_damage_in_a_log_file_is_reported_with_its_position(tmp_path: Path) -> None:
    file = tmp_path / "t-0" / "00000000000000000000.log"
    file.parent.mkdir()
    file.write_bytes(b"\0" * 7)
    assert "damaged: 7 bytes at position 0 are not a complete batch" in milena("log", "dump", str(file), code=1).out
