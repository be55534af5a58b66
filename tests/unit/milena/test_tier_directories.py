"""`milena tier --dir` and `--metadata` with moved and copied directories, and with the directory of one broker."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from milena.command_line.errors import UserError
from milena.commands.tier.command import main
from milena.commands.tier.directories import relocated
from milena.runtime.files import RealDisk
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from tests.unit.tiered.whole_tier import write_segment

FEW = ["--brokers", "2", "--override", "rlmm.config.remote.log.metadata.topic.num.partitions=1"]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The directory of a stopped cluster of `milena up`, which contains its tier."""
    folder = tmp_path / "c1"
    disk = RealDisk()
    write_segment(disk, str(folder / "remote"), 1, 0, 9, {0: 0})
    write_segment(disk, str(folder / "remote"), 2, 10, 19, {0: 10}, checkpoint={0: 0})
    disk.close()
    assert main(["restore", "--dir", str(folder), *FEW]) == 0
    return folder


def verified(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert main(["verify", "--json", *map(str, arguments)]) == code
    return json.loads(capsys.readouterr().out)


def logs_of(cluster: Path) -> list[Path]:
    return sorted((cluster / "remote").glob("*/*/*.log"))


def data_of(cluster: Path) -> list[str]:
    return [str(cluster / f"broker-{number}" / "data") for number in (1, 2)]


def test_the_tier_and_metadata_in_a_copied_directory_are_used(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(cluster, tmp_path / "snap2"))
    logs_of(copy)[0].unlink()
    found = verified(capsys, "--dir", copy, code=1)
    assert (found["tier"], found["metadata"]) == (str(copy / "remote"), data_of(copy))
    assert [one["kind"] for one in found["findings"]] == ["missing"]
    assert verified(capsys, "--dir", cluster)["tier"] == str(cluster / "remote")


def test_the_tier_and_metadata_in_a_moved_directory_are_found(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster.rename(tmp_path / "c2")
    for options in ([], ["--tier", there / "remote"]):
        found = verified(capsys, "--dir", there, *options)
        assert (found["tier"], found["metadata"]) == (str(there / "remote"), data_of(there))
    assert main(["verify", "--dir", str(there)]) == main(["ls", "--dir", str(there)]) == 0
    line = f"tier {there}/remote, metadata in {', '.join(data_of(there))}\n"
    assert capsys.readouterr().out.count(line) == 2


def test_a_tier_outside_of_a_moved_directory_is_found_at_its_place(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = (cluster / "remote").rename(tmp_path / "tier")
    shutil.rmtree(cluster)
    assert main(["restore", "--tier", str(outside), "--dir", str(cluster), *FEW]) == 0
    there = cluster.rename(tmp_path / "c2")
    assert verified(capsys, "--dir", there)["tier"] == str(outside)
    assert relocated("/a/bc/remote", "/a/b", "/x") == "/a/bc/remote"


def test_paths_in_a_properties_file_of_the_user_are_used_unchanged(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(cluster, tmp_path / "snap2"))
    for number in (1, 2):
        properties = copy / f"broker-{number}" / "server.properties"
        properties.write_text("".join(properties.read_text().splitlines(keepends=True)[1:]))
    found = verified(capsys, "--dir", copy)
    assert (found["tier"], found["metadata"]) == (str(cluster / "remote"), data_of(cluster))


def test_the_directory_of_one_broker_is_sufficient(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = cluster / "broker-1"
    found = verified(capsys, "--dir", broker)
    assert (found["tier"], found["metadata"]) == (str(cluster / "remote"), data_of(cluster)[:1])
    (broker / "server.properties").unlink()
    options = ["--tier", cluster / "remote"]
    for directory in (broker, broker / "data"):
        assert verified(capsys, "--dir", directory, *options)["metadata"] == data_of(cluster)[:1]


def test_the_metadata_of_a_moved_cluster_is_read_or_its_absence_is_an_error(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = cluster.rename(tmp_path / "c2")
    options = ["--tier", str(old / "remote"), "--metadata", str(old), *FEW]
    assert main(["restore", "--dir", str(tmp_path / "c3"), *options]) == 0
    output = capsys.readouterr().out
    assert f"tier {old}/remote, metadata in {', '.join(data_of(old))}\n" in output
    for data in data_of(old):
        shutil.rmtree(Path(data) / f"{REMOTE_LOG_METADATA_TOPIC}-0")
    sentence = f"--metadata {old}: there is no metadata topic in {', '.join(data_of(old))}; without"
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"):
        main(["restore", "--dir", str(tmp_path / "c4"), *options])
    assert not (tmp_path / "c4").exists()
    assert verified(capsys, "--dir", old)["metadata"] == []


def test_storage_options_are_refused_if_the_tier_of_the_directory_is_a_folder(cluster: Path) -> None:
    with pytest.raises(UserError, match=r"^--storage-options needs a URL, but the tier is the folder "):
        main(["verify", "--dir", str(cluster), "--storage-options", "{bad"])
