"""`kafka-storage`: directories are formatted for Milena's and Kafka's nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.controller.log.formatting import read_bootstrap
from milena.protocol.metadata_records import FeatureLevelRecord
from milena.protocol.uuids import from_text
from milena.runtime.files import RealDisk
from milena.storage.files.meta_properties import decode_meta_properties
from tests.wire.scripts import printed, script

ID = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A combined node with two log directories, as in Kafka's example file."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return file


def test_a_random_id_is_an_id() -> None:
    texts = {printed("kafka-storage.sh", "random-uuid").strip() for _ in range(5)}
    assert len(texts) == 5
    for text in texts:
        from_text(text)


def test_all_directories_are_formatted_once(config: Path, tmp_path: Path) -> None:
    words = ("format", "-t", ID, "-c", str(config), "--standalone")
    assert printed("kafka-storage.sh", *words) == (
        f"Formatting data directory {tmp_path}/b with metadata.version 4.4-IV2.\n"
        f"Formatting metadata directory {tmp_path}/a with metadata.version 4.4-IV2.\n"
    )
    metas = [decode_meta_properties((tmp_path / name / "meta.properties").read_bytes()) for name in "ab"]
    assert {(meta.cluster_id, meta.node_id) for meta in metas} == {(ID, 1)}
    assert len({meta.directory_id for meta in metas}) == 2
    disk = RealDisk()
    records = read_bootstrap(disk, f"{tmp_path}/a") or ()
    levels = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    assert levels == {"metadata.version": 33, "transaction.version": 2}
    disk.close()
    again = script("kafka-storage.sh", *words)
    assert (again.code, again.out) == (1, "")
    assert "is already formatted. Use --ignore-formatted to ignore this directory" in again.err
    ignored = printed("kafka-storage.sh", *words, "--ignore-formatted")
    assert ignored == "All of the log directories are already formatted.\n"
    other = script("kafka-storage.sh", "format", "-t", "other", "-c", str(config), "-s", "-g")
    assert f"Invalid cluster.id in: {tmp_path}/a/meta.properties. Expected other, but read {ID}" in other.err
    shown = printed("kafka-storage.sh", "info", "-c", str(config))
    assert shown.startswith(
        f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\nFound metadata: {{cluster.id={ID}, "
    )


def test_missing_directories_are_a_problem(config: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    shown = script("kafka-storage.sh", "info", "-c", str(config))
    assert shown.code == 1
    assert shown.out.endswith(f"Found problems:\n  {tmp_path}/a is not formatted.\n  {tmp_path}/b does not exist\n\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("format", "-t", ID), "kafka-storage: error: argument --config/-c is required"),
        (("format", "-c", "FILE"), "kafka-storage: error: argument --cluster-id/-t is required"),
        (
            ("format", "-t", ID, "-c", "FILE"),
            "Because controller.quorum.voters is not set on this controller, you must",
        ),
        (("format", "-t", ID, "-c", "FILE", "-s", "-r", "9.9"), "--release-version: unknown release version '9.9'"),
        (("info", "-c", "/nowhere"), "java.nio.file.NoSuchFileException: /nowhere"),
        ((), "usage: kafka-storage {info,format,random-uuid}"),
    ],
)
def test_errors_say_what_is_wrong(config: Path, words: tuple[str, ...], said: str) -> None:
    ended = script("kafka-storage.sh", *(str(config) if word == "FILE" else word for word in words))
    assert ended.code == 1
    assert said in ended.err
