"""The records that `milena tier fetch` prints, and its errors about missing and unreadable offsets."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from milena.command_line.errors import UsageError, UserError
from milena.commands.tier.command import main
from milena.runtime.files import RealDisk
from tests.unit.tiered.segments import PARTITION
from tests.unit.tiered.whole_tier import log_bytes, write_segment

FEW = ["--brokers", "1", "--override", "rlmm.config.remote.log.metadata.topic.num.partitions=1"]
SECOND = "AAAAAAAAAAAAAAAAAAAAAg"
BATCH = len(log_bytes(0, 0, {0: 0})[0])


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Partition 0 has offsets 5 to 24 in two segments, one batch per record; partition 1 has a gap. The metadata is in
    the directory of the cluster."""
    disk, tier = RealDisk(), str(tmp_path / "c1" / "remote")
    write_segment(disk, tier, 1, 5, 14, {0: 5}, checkpoint={0: 0})
    write_segment(disk, tier, 2, 15, 24, {0: 15}, checkpoint={0: 0})
    other = replace(PARTITION, partition=1)
    write_segment(disk, tier, 3, 0, 9, {0: 0}, partition=other)
    write_segment(disk, tier, 4, 20, 29, {0: 20}, checkpoint={0: 0}, partition=other)
    disk.close()
    assert main(["restore", "--dir", str(tmp_path / "c1"), "--skip-gaps", *FEW]) == 0
    return tmp_path / "c1"


class Fetch:
    """The command with its output."""

    def __init__(self, cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster, self.capsys = cluster, capsys
        self.options = ["--tier", str(cluster / "remote"), "--dir", str(cluster)]

    def without_metadata(self) -> Fetch:
        self.options = self.options[:2]
        return self

    def __call__(self, *words: str, code: int = 0, refused: str | None = None) -> tuple[list[int], str]:
        """Run the command; returns the printed offsets and stderr."""
        self.capsys.readouterr()
        command = ["fetch", *words, "--json", *self.options]
        if refused is None:
            assert main(command) == code
        else:
            with pytest.raises(UserError, match=f"^{re.escape(refused)}$"):
                main(command)
        said = self.capsys.readouterr()
        return [json.loads(line)["offset"] for line in said.out.splitlines() if line.startswith("{")], said.err

    def log(self, start: int) -> Path:
        [found] = self.cluster.glob(f"remote/*/t-0-*/{start:020d}-*.log")
        return found

    def cut(self, start: int, size: int) -> None:
        path = self.log(start)
        path.write_bytes(path.read_bytes()[:size])


@pytest.fixture
def fetch(cluster: Path, capsys: pytest.CaptureFixture[str]) -> Fetch:
    return Fetch(cluster, capsys)


def test_an_impossible_range_is_refused(fetch: Fetch) -> None:
    for options, sentence in (
        (("--from-offset", "200", "--to-offset", "100"), "--from-offset 200 is after --to-offset 100"),
        (("--from-offset", "-1"), "--from-offset -1: offsets start at 0"),
        (("--to-offset", "-1"), "--to-offset -1: offsets start at 0"),
    ):
        for what in ("t:0", SECOND):
            with pytest.raises(UsageError, match=f"^{sentence}$"):
                main(["fetch", what, *options, *fetch.options])
    with pytest.raises(UsageError, match=r"^--out copies a whole log: "):
        main(["fetch", SECOND, "--out", "x", "--to-offset", "1", *fetch.options])


def test_a_topic_without_a_partition_is_refused(fetch: Fetch) -> None:
    with pytest.raises(UserError, match=r"^t is a topic: write TOPIC:PARTITION, as in t:0, or give a segment"):
        main(["fetch", "t", *fetch.options])
    with pytest.raises(UserError, match=r"^t is a topic: give a segment's id; `milena tier ls t` lists them"):
        main(["fetch", "t", "--out", "x", *fetch.options])


def test_missing_offsets_of_a_range_are_reported(fetch: Fetch) -> None:
    assert fetch("t:0") == ([*range(5, 25)], "")
    assert fetch("t:0", "--from-offset", "7", "--to-offset", "16") == ([*range(7, 17)], "")
    offsets, errors = fetch("t:0", "--from-offset", "0", "--to-offset", "99", code=1)
    assert offsets == [*range(5, 25)]
    assert errors.splitlines() == [
        "milena: offsets 0 to 4 are not in the tier",
        "milena: offsets 25 to 99 are not in the tier",
    ]
    fetch.without_metadata()
    assert fetch("t:0") == ([*range(5, 25)], "")
    offsets, errors = fetch("t:1", code=1)
    assert offsets == [*range(10), *range(20, 30)] and errors == "milena: offsets 10 to 19 are not in the tier\n"
    fetch("t:0", "--from-offset", "25", refused="offset 25 of t:0 is not in the tier, nor are later ones")
    fetch("t:0", "--to-offset", "3", refused="offset 0 of t:0 is not in the tier, nor are later ones")


def test_offsets_outside_of_a_segment_are_reported(fetch: Fetch) -> None:
    offsets, errors = fetch(SECOND, "--from-offset", "14", "--to-offset", "25", code=1)
    assert offsets == [*range(15, 25)]
    assert errors.splitlines() == [f"milena: offsets {one} to {one} are not in segment {SECOND}" for one in (14, 25)]
    fetch(SECOND, "--to-offset", "3", refused=f"segment {SECOND} only has the offsets 15 to 24")


@pytest.mark.parametrize("known", [True, False])
def test_records_before_damage_are_printed_and_then_the_damage_is_reported(fetch: Fetch, known: bool) -> None:
    fetch.cut(15, 3 * BATCH + 70)
    if not known:
        fetch.without_metadata()
    size = f"its log has {3 * BATCH + 70} of {10 * BATCH} bytes, " if known else ""
    sentence = (
        f"segment {SECOND}: {size}the 70 bytes at position {3 * BATCH} are not a complete batch; offsets before 18 "
        "can be read"
    )
    assert fetch("t:0", refused=sentence) == ([*range(5, 18)], "")
    assert fetch(SECOND, refused=sentence) == ([15, 16, 17], "")
    assert fetch(SECOND, "--to-offset", "17") == ([15, 16, 17], "")
    assert fetch("t:0", "--from-offset", "9", "--to-offset", "16") == ([*range(9, 17)], "")


def test_a_log_that_ends_early_and_a_wrong_checksum_are_reported(fetch: Fetch) -> None:
    fetch.cut(15, 3 * BATCH)
    size = f"its log has {3 * BATCH} of {10 * BATCH} bytes, it ends at position {3 * BATCH}"
    sentence = f"segment {SECOND}: {size}; offsets before 18 can be read"
    assert fetch("t:0", refused=sentence) == ([*range(5, 18)], "")
    data = bytearray(fetch.log(5).read_bytes())
    data[2 * BATCH - 1] ^= 1
    fetch.log(5).write_bytes(data)
    with pytest.raises(UserError, match=f"the batch at position {BATCH}: .*; offsets before 6 can be read$"):
        main(["fetch", "t:0", *fetch.options])
    assert fetch("t:0", "--from-offset", "7", "--to-offset", "14") == ([*range(7, 15)], "")
    fetch.log(15).unlink()
    fetch(SECOND, refused=f"there is no .log of segment {SECOND} in the tier")


@pytest.mark.parametrize("known", [True, False])
def test_the_available_bytes_of_a_truncated_log_are_copied(fetch: Fetch, tmp_path: Path, known: bool) -> None:
    fetch.cut(15, 3 * BATCH + 70)
    if not known:
        fetch.without_metadata()
    size = f"its log has {3 * BATCH + 70} of {10 * BATCH} bytes, " if known else ""
    out = tmp_path / "out.log"
    damage = f"the 70 bytes at position {3 * BATCH} are not a complete batch"
    fetch(SECOND, "--out", str(out), refused=f"segment {SECOND}: {size}{damage}; the available bytes were copied")
    assert out.read_bytes() == fetch.log(15).read_bytes()
    if known:
        fetch.cut(15, 70)
        with pytest.raises(
            UserError, match="the 70 bytes at position 0 are not a complete batch; the available bytes were copied"
        ):
            main(["fetch", SECOND, "--out", f"{out}2", *fetch.options])
        assert fetch.capsys.readouterr().out == f"{out}2: 70 bytes, no complete batch\n"
