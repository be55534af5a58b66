"""Faults of disks, clocks and tiers that commands cause at the nodes of a lab."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import place_topic
from tests.wire.command import milena, refused
from tests.wire.lab import SESSION, leader_of, log_of, write
from tests.wire.tiers import TIERED, settings
from tests.wire.waiting import wait_until

HOUR = 3_600_000


@pytest.fixture(scope="module", params=["folder", pytest.param("file", marks=pytest.mark.slow)])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers with a tier in a folder, accessed directly or through fsspec."""
    folder = tmp_path_factory.mktemp("faults")
    intervals = {key: value for key, value in settings(folder).items() if "interval" in key or "rlmm" in key}
    tier = str(folder / "tier") if request.param == "folder" else f"file://{folder}/tier"
    with LocalCluster.start(
        folder / "lab", brokers=2, overrides=SESSION | intervals, lab=True, options=["--tier", tier]
    ) as running:
        yield running


def directory(lab: LocalCluster, node: int) -> str:
    return lab.nodes[node].log_dirs[0]


def test_a_broker_with_a_full_disk_loses_its_partitions_until_it_is_restarted(lab: LocalCluster, topic: str) -> None:
    place_topic(lab.bootstrap, topic, [[1, 2]])
    write(lab, topic, "before")
    assert lab.lab_commands(1).call("fill_disk") == {"full": directory(lab, 1)}
    assert log_of(lab, 1, topic) == ["before"]  # the log can still be read
    write(lab, topic, "while it is full")
    wait_until(lambda: lab.nodes[1].pid is None, "the broker without a directory to end")
    assert "No space left on device" in lab.log(1)
    assert leader_of(lab, topic) == 2
    lab.start_node(1)
    wait_until(lambda: log_of(lab, 1, topic) == ["before", "while it is full"], "broker 1 to have all")


def test_each_sync_of_a_slow_disk_takes_longer(lab: LocalCluster, topic: str) -> None:
    place_topic(lab.bootstrap, topic, [[1]])
    write(lab, topic, "x")
    assert lab.lab_commands(1).call("slow_disk", path=directory(lab, 1), ms=700)["ms"] == 700
    began = time.monotonic()
    lab.lab_commands(1).call("flush", topic=topic, partition=0)
    assert time.monotonic() - began >= 0.7
    lab.lab_commands(1).call("slow_disk", ms=0)


def timestamps(lab: LocalCluster, topic: str) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=lab.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([TopicPartition(topic, 0)])
    (end,) = consumer.end_offsets([TopicPartition(topic, 0)]).values()
    found = [next(consumer).timestamp for _ in range(end)]
    consumer.close()
    return found


def test_a_clock_jumps_forward_and_back_and_is_corrected(lab: LocalCluster, topic: str) -> None:
    place_topic(lab.bootstrap, topic, [[2]], {"message.timestamp.type": "LogAppendTime"})
    began = time.time_ns() // 1_000_000
    for ms in (10 * HOUR, -10 * HOUR, 0):
        lab.lab_commands(2).call("jump_clock", ms=ms)
        write(lab, topic, "x")
    ended = time.time_ns() // 1_000_000
    found = [time - ms for time, ms in zip(timestamps(lab, topic), (10 * HOUR, -10 * HOUR, 0), strict=True)]
    assert began <= found[0] <= found[1] <= found[2] <= ended


def segments(lab: LocalCluster, topic: str) -> dict[int, str]:
    """Return the state of each remote segment by start offset, as broker 1 knows it."""
    answer = lab.lab_commands(1).call("remote_segments", topic=topic, partition=0)
    return {one["start_offset"]: one["state"] for one in answer}


def test_a_tier_is_unavailable_and_then_loses_segments(lab: LocalCluster, topic: str) -> None:
    place_topic(lab.bootstrap, topic, [[1]], TIERED | {"local.retention.bytes": "-2"})
    first = lab.lab_commands(1)
    write(lab, topic, "kept")
    first.call("break_tier", away=True)
    first.call("roll", topic=topic, partition=0)

    def fails() -> bool:  # at first perhaps because the broker has not read the metadata of the tier yet
        with pytest.raises(UserError) as failure:
            first.call("tiering", topic=topic, partition=0)
        return "Input/output error" in str(failure.value)

    wait_until(fails, "the copy to fail")
    first.call("break_tier")
    wait_until(lambda: segments(lab, topic) == {0: "COPY_SEGMENT_FINISHED"}, "the first segment to be copied")
    assert first.call("lost_objects") == []
    first.call("break_tier", lose=1)
    write(lab, topic, "lost")
    first.call("roll", topic=topic, partition=0)
    wait_until(lambda: len(segments(lab, topic)) == 2, "the second segment to be copied")
    wait_until(lambda: set(segments(lab, topic).values()) == {"COPY_SEGMENT_FINISHED"}, "the copy to end")
    (path,) = first.call("lost_objects")
    assert not Path(path).exists()
    beside = sorted(file.name for file in Path(path).parent.iterdir())
    assert len([name for name in beside if name.endswith(".log")]) == 1
    assert len([name for name in beside if name.endswith(".snapshot")]) == 2
    first.call("break_tier")


def test_arguments_of_disk_clock_and_tier_faults_are_validated(lab: LocalCluster) -> None:
    at, path = ("--dir", lab.directory), f"path={directory(lab, 1)}"
    for command in ("fill_disk", "slow_disk"):
        elsewhere = ["path=/elsewhere", *(["ms=1"] if command == "slow_disk" else [])]
        assert refused("lab", "1", command, *elsewhere, *at).startswith("/elsewhere is not one of the log directories")
    assert refused("lab", "1", "slow_disk", path, "ms=-1", *at) == "ms=-1: not between 0 and 60000"
    assert refused("lab", "1", "jump_clock", "ms=soon", *at).startswith("jump_clock: ms=soon is not of type integer: ")
    assert refused("lab", "1", "jump_clock", f"ms={1 << 60}", *at) == f"ms={1 << 60}: out of range"
    assert refused("lab", "1", "break_tier", "away=yes", *at).startswith(
        "break_tier: away=yes is not of type boolean: "
    )
    assert refused("lab", "1", "break_tier", "lose=2", *at) == "lose=2: not between 0 and 1"
    assert refused("lab", str(lab.controller.id), "break_tier", *at).startswith("no command 'break_tier'; there are ")
    assert json.loads(milena("lab", "1", "break_tier", "delay_ms=5", *at).out)["delay_ms"] == 5
    milena("lab", "1", "break_tier", *at)


def test_a_cluster_is_idle_when_the_tier_and_the_followers_have_all(lab: LocalCluster, topic: str) -> None:
    place_topic(lab.bootstrap, topic, [[1, 2]], TIERED | {"local.retention.bytes": "-2"})
    write(lab, topic, "x")
    lab.wait_idle()
    first = lab.lab_commands(1)
    first.break_tier(away=True)
    assert first.roll(topic, 0) == 1
    with pytest.raises(UserError, match=rf"the cluster is not idle after 0 seconds: .*{topic}-0: segments to copy: 1"):
        lab.wait_idle(0)
    first.break_tier()
    lab.wait_idle()
    assert segments(lab, topic) == {0: "COPY_SEGMENT_FINISHED"}
    assert [lab.lab_commands(node).read_log(topic, 0) for node in (1, 2)] == [[(0, "x", 0)]] * 2
    with first.hold(api="FETCH", node=2) as fetches:
        fetches.wait()
        producer = Producer({"bootstrap.servers": lab.bootstrap, "acks": "1"})
        producer.produce(topic, b"y")
        assert producer.flush(30) == 0
        assert first.busy() == [f"{topic}-0: broker 2 does not have all records"]
    assert first.rules() == []
    lab.wait_idle()
    assert len(lab.lab_commands(2).read_log(topic, 0)) == 2
