"""`milena tier` on the files of a stopped cluster, and a new cluster restored from the tier alone."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from milena.__main__ import run
from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.clients import Record, all_clients
from tests.wire.command import milena, refused
from tests.wire.tiers import TIERED, logs
from tests.wire.waiting import wait_until

SEGMENTS = 9
RECORDS: list[Record] = [(b"key", b"%-1000d" % number) for number in range(100)]
METADATA_PARTITIONS = {"rlmm.config.remote.log.metadata.topic.num.partitions": "3"}
OVERRIDES = METADATA_PARTITIONS | {
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}
ROOT = "kafka-tiered-storage"


def write(bootstrap: str) -> None:
    """Write a batch for each record with an idempotent producer: a restored cluster must not assign its id again."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True, "log_level": 0})
    for key, value in RECORDS:
        producer.produce("t", key=key, value=value, partition=0)
        assert producer.flush(20) == 0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a cluster of three brokers, stopped when all closed segments of topic ``t`` were in its tier."""
    folder = tmp_path_factory.mktemp("stopped") / "cluster"
    with LocalCluster.start(folder, brokers=3, overrides=OVERRIDES) as running:
        create_topic(running.bootstrap, "t", partitions=1, replicas=3, config=TIERED)
        write(running.bootstrap)
        wait_until(
            lambda: all(len(logs(Path(one.log_dirs[0]), "t-0")) == 1 for one in running.brokers),
            "closed segments are in the tier",
        )
    return folder


@pytest.fixture
def tier(stopped: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the stopped cluster's tier, which a test may damage."""
    yield Path(shutil.copytree(stopped / "remote", tmp_path / "tier"))


def plain(*arguments: str, code: int = 0) -> Any:
    """Run a command of `milena tier` in this process, because a new one starts slowly; return the JSON it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["tier", *arguments, "--json"]) == code
    return json.loads(out.getvalue())


def test_segments_are_listed_with_their_lineage(stopped: Path) -> None:
    listed = plain("ls", "--dir", str(stopped))
    segments = listed["segments"]
    assert (listed["topic"], listed["partition"], listed["leader_epochs"][0]) == ("t", 0, [0, 0])
    assert {(one["state"], one["lineage"]) for one in segments} == {("COPY_SEGMENT_FINISHED", "yes")}
    ends = [0, *(one["end_offset"] + 1 for one in segments)]
    assert [one["start_offset"] for one in segments] == ends[:-1]
    table = milena("tier", "ls", "t:0", "--dir", str(stopped)).out
    assert all(one["id"] in table for one in segments) and "leader epochs 0 from 0" in table


def test_one_segment_is_shown_and_fetched(stopped: Path, tmp_path: Path) -> None:
    first, second, *_ = plain("ls", "--dir", str(stopped))["segments"]
    shown = plain("show", first["id"][:8], "--dir", str(stopped))
    assert [event["state"] for event in shown["history"]] == ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"]
    assert (shown["log"]["first_offset"], shown["log"]["last_offset"]) == (0, first["end_offset"])
    assert shown["files"] == first["objects"] and not shown["log"]["damage"]
    out = tmp_path / "first.log"
    milena("tier", "fetch", first["id"], "--out", str(out), "--dir", str(stopped))
    [original] = (stopped / "remote" / ROOT).glob(f"*/*{first['id']}.log")
    assert out.read_bytes() == original.read_bytes()
    start = second["start_offset"]
    options = ["--from-offset", str(start - 1), "--to-offset", str(start + 1), "--tier", f"local://{stopped}/remote"]
    fetched = milena("tier", "fetch", "t:0", *options).out
    assert fetched.encode() == b"".join((value or b"") + b"\n" for _, value in RECORDS[start - 1 : start + 2])


def test_verify_finds_no_damage_in_the_tier_of_a_stopped_cluster(stopped: Path) -> None:
    for options in (["--dir", str(stopped)], ["--tier", str(stopped / "remote")]):
        found = plain("verify", *options)
        assert (found["findings"], found["partitions"]) == ([], 1) and found["segments"] >= SEGMENTS
    assert milena("tier", "verify", "--dir", str(stopped)).out.endswith("no findings\n")
    assert refused("tier", "verify", "--tier", "/nowhere").startswith("cannot list /nowhere/kafka-tiered-storage: ")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("suffix", "damage", "kinds"),
    [
        (".log", flip, {"crc"}),
        (".log", lambda path: path.write_bytes(path.read_bytes()[:-100]), {"truncated"}),
        (".index", lambda path: path.write_bytes(path.read_bytes() + b"x"), {"index"}),
        (".snapshot", Path.unlink, {"missing"}),
        (".log", lambda path: path.with_name("foreign").write_bytes(b""), {"foreign"}),
    ],
    ids=["crc", "truncated", "index", "missing", "foreign"],
)
def test_verify_names_damage_and_exits_with_code_1(
    stopped: Path, tier: Path, suffix: str, damage: Callable[[Path], object], kinds: set[str]
) -> None:
    damage(sorted((tier / ROOT).glob(f"*/*{suffix}"))[3])
    found = plain("verify", "--tier", str(tier), "--dir", str(stopped), code=1)
    assert {one["kind"] for one in found["findings"]} == kinds


def test_a_segment_without_metadata_is_an_orphan(stopped: Path, tier: Path) -> None:
    for path in sorted((tier / ROOT).glob("t-0-*/00000000000000000000-*")):
        path.rename(path.with_name(path.name.replace(path.name[21:43], "A" * 21 + "Q")))
    printed = milena("tier", "verify", "--tier", str(tier), "--dir", str(stopped / "broker-2" / "data"), code=1).out
    assert "orphan: t-0 AAAAAAAAAAAAAAAAAAAAAQ: there is no metadata of it, 5 objects are there" in printed
    assert "it has no files" in printed


def restored(stopped: Path, tier: Path, folder: Path, *options: str) -> str:
    """Restore a cluster of two brokers from ``tier``; return the command's output."""
    overrides = [word for key, value in OVERRIDES.items() for word in ("--override", f"{key}={value}")]
    arguments = ["--tier", str(tier), "--dir", str(folder), "--brokers", "2", *overrides, *options]
    return milena("tier", "restore", *arguments).out


def test_a_restored_cluster_serves_the_tier_to_every_client(stopped: Path, tier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    end = plain("ls", "--dir", str(stopped))["segments"][-1]["end_offset"] + 1
    assert f"t: 1 partition\n  0: offsets 0 to {end - 1}, " in restored(stopped, tier, folder)
    with LocalCluster.start(folder, brokers=2) as running:
        for client in all_clients():
            found = client.consume(running.bootstrap, "t", end, group=client.name)
            assert found == [(0, offset, record) for offset, record in enumerate(RECORDS[:end])], client.name


def test_a_restored_cluster_continues_from_the_metadata_topic(stopped: Path, tier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    config = ["--config", "local.retention.bytes=1", "--config", "internal.segment.bytes=10000"]
    restored(stopped, tier, folder, "--metadata", str(stopped), *config)
    before = plain("ls", "--dir", str(folder))["segments"]
    assert {one["broker"] for one in before} <= {1, 2, 3}
    with LocalCluster.start(folder, brokers=2) as running:
        write(running.bootstrap)
        wait_until(
            lambda: all(len(logs(Path(one.log_dirs[0]), "t-0")) == 1 for one in running.brokers),
            "closed segments are in the tier",
        )
        printed = milena("consume", "t", "-b", running.bootstrap, "--from-beginning", "--exit").out
        old = before[-1]["end_offset"] + 1
        expected = [value for _, value in RECORDS[:old] + RECORDS]
        assert printed.encode().splitlines() == expected
    found = plain("verify", "--dir", str(folder))
    assert found["findings"] == [] and found["segments"] >= len(before) + SEGMENTS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["restore", "--dir", "{stopped}"], "{stopped} already has a cluster: restore into a new directory"),
        (["restore", "--dir", "{folder}"], "{folder} is not empty: it has something"),
        (
            ["restore", "--dir", "{folder}/new"],
            "{folder}/new/remote is not a tier: there is no {folder}/new/remote/kafka",
        ),
        (["restore", "--dir", "{folder}/new", "--tier", "{tier}", "--topic", "u"], "there is no topic u in the tier; "),
        (
            ["restore", "--dir", "{folder}/new", "--tier", "{tier}", "--topic", "t=?"],
            "--topic t=?: ? is not a topic id",
        ),
        (["restore", "--dir", "{folder}/new", "--tier", "{tier}", "--config", "x=1"], "--config x: no such topic conf"),
        (
            ["restore", "--dir", "{folder}/new", "--tier", "{tier}", "--replicas", "4"],
            "--replicas 4: there are only 3 b",
        ),
        (["restore", "--dir", "{folder}/new", "--tier", "{tier}", "--partitions", "t=x"], "--partitions t=x: not a nu"),
        (["ls", "other", "--dir", "{stopped}"], "other is neither in the tier nor in its metadata"),
        (["verify", "t:9", "--dir", "{stopped}"], "t:9 is neither in the tier nor in its metadata"),
        (["verify", "--tier", "{folder}"], "cannot list {folder}/kafka-tiered-storage: "),
        (["ls", "--dir", "{folder}"], "{folder} is not the directory of a cluster or broker, nor a log"),
        (["ls", "--dir", "{stopped}/broker-1/data"], "give the tier with --tier: "),
        (["ls", "--tier", "nowhere://x"], "cannot reach nowhere://x: "),
        (["show", "nothing", "--dir", "{stopped}"], "there is no segment nothing; `milena tier ls` lists them"),
        (["fetch", "t:0", "--dir", "{stopped}", "--from-offset", "999"], "offset 999 of t:0 is not in the tier, nor"),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else "",
)
def test_impossible_arguments_are_a_one_line_error(
    stopped: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "something").write_text("")
    names = {"stopped": stopped, "folder": tmp_path, "tier": stopped / "remote"}
    with pytest.raises(UserError, match=f"^{re.escape(sentence.format(**names))}"):
        run(["tier", *[word.format(**names) for word in arguments]])
    assert not (tmp_path / "new").exists()
