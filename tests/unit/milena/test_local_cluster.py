"""`LocalCluster`, which the pytest plugin provides: a wrong call raises an error with one sentence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster
from milena.up import nodes_file
from milena.up.layout import ClusterDir


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Broker 1 runs (it is this process), broker 2 is down."""
    layout = ClusterDir(str(tmp_path))
    entries: list[nodes_file.Entry] = [
        {"id": number, "roles": ["broker"], "pid": pid, "listeners": {}, "log.dirs": []}
        for number, pid in ((1, os.getpid()), (2, None))
    ]
    nodes_file.write(layout.nodes, entries)
    with subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True) as process:
        yield LocalCluster(str(tmp_path), process, -1, "", {})


def test_killing_an_unknown_node_is_an_error(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match=r"^there is no node 9: there are 1, 2$"):
        cluster.kill(9)


@pytest.mark.parametrize("command", ["restart", "log"])
def test_other_commands_for_an_unknown_node_are_errors(cluster: LocalCluster, command: str) -> None:
    with pytest.raises(UserError, match=r"^there is no node 9: there are 1, 2$"):
        getattr(cluster, command)(9)


def test_starting_a_running_node_is_an_error(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match=rf"^node 1 is running \(pid {os.getpid()}\): kill or stop it first$"):
        cluster.restart(1)


def test_killing_a_stopped_node_is_an_error(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match=r"^node 2 is not running$"):
        cluster.kill(2)
