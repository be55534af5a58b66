"""Nodes open the data folders of former releases, serve their records, and append to them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import MILENA, LocalCluster
from tests.wire import data_folder

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
FOLDERS = sorted(path.name for path in FIXTURES.glob("data-*"))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_former_data_folder_is_opened(name: str, tmp_path: Path, milena_start: Callable[..., LocalCluster]) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "data")
    cluster = milena_start(directory=tmp_path / "data")
    data_folder.check(cluster.bootstrap)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce(data_folder.TOPIC, "one more")
    assert producer.flush(10) == 0
    data_folder.check(cluster.bootstrap)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_file_of_a_former_data_folder_can_be_dumped(name: str) -> None:
    files = [str(path) for path in (FIXTURES / name).glob("*/data/*-*/*") if path.is_file()]
    assert len(files) > 10
    done = subprocess.run([*MILENA, "log", "dump", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_folder_for_each_milestone() -> None:
    assert FOLDERS[0] == "data-m1"
