"""Nodes and supervisors that are killed: reports, restarts, and no remaining processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.testing.local_cluster import LIMIT, MILENA, LocalCluster
from milena.up.processes import runs
from tests.wire.command import milena, node, refused
from tests.wire.raw import answers
from tests.wire.waiting import wait_gone, wait_until

IMPATIENT = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""Short waits for a broker that was killed with its controller, and for a missing controller. The session is long
enough that a busy machine does not fence a broker."""


def processes(cluster: LocalCluster) -> list[int]:
    return [node.pid for node in cluster.nodes.values() if node.pid is not None]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers. Each test that kills a node restarts it."""
    with LocalCluster.start(tmp_path_factory.mktemp("mortal"), brokers=2, overrides=IMPATIENT) as running:
        yield running


def test_nodes_json_is_current_while_nodes_stop_and_start(mortal: LocalCluster) -> None:
    before = mortal.nodes
    assert all(found.pid and runs(found.pid) for found in before.values())
    mortal.kill(2)
    assert mortal.nodes == {**before, 2: before[2]._replace(pid=None)}
    mortal.restart(2)
    after = mortal.nodes
    assert after == {**before, 2: before[2]._replace(pid=after[2].pid)}
    assert after[2].pid not in (None, before[2].pid)


def test_a_killed_node_is_reported_and_not_restarted(mortal: LocalCluster) -> None:
    mortal.kill(1)
    entries = Path(mortal.directory, "up.stderr").read_text().splitlines()
    assert (
        f"broker-1 was ended by signal 9; to restart it: milena lab broker-1 start --dir {mortal.directory}" in entries
    )
    rows = milena("status", "--dir", mortal.directory, code=1).out.splitlines()[1:]
    assert [row.split()[:4] for row in rows if " down " in row] == [["1", "broker", "down", "-"]]
    mortal.restart(1)
    assert milena("status", "--dir", mortal.directory).out.count(" up ") == 3


def test_a_node_can_be_restarted_after_a_controlled_shutdown(mortal: LocalCluster) -> None:
    mortal.kill(2, signal.SIGTERM)
    assert Path(mortal.nodes[2].log_dirs[0], ".kafka_cleanshutdown").exists()
    mortal.restart(2)
    assert answers(mortal.nodes[2].listeners["PLAINTEXT"])


def test_a_node_whose_folder_was_removed_is_created_again(mortal: LocalCluster) -> None:
    """The folder is missing as after `rm -rf` or the replacement of a disk."""
    at = ("--dir", mortal.directory)
    milena("topic", "create", "everywhere", "--partitions", "1", "--replicas", "2", "-b", mortal.bootstrap)
    milena("produce", "everywhere", "-b", mortal.bootstrap, stdin="kept\n")
    mortal.kill(2)
    folder = Path(mortal.directory, "broker-2")
    shutil.rmtree(folder)
    assert milena("lab", "2", "wipe", *at).err == f"broker-2: nothing to wipe, {folder}/data does not exist\n"
    said = refused("node", str(folder / "server.properties"))
    assert said == (
        f"{folder}/server.properties: No such file or directory; `milena up` and `milena lab broker-2 start` write the "
        "file again"
    )
    assert milena("lab", "2", "start", *at) == ("", "")
    assert milena("status", *at).out.count(" up ") == 3, "it is there when it serves"
    copy = folder / "data" / "everywhere-0" / "00000000000000000000.log"
    wait_until(lambda: copy.exists() and b"kept" in copy.read_bytes(), "the broker to have all again")


def test_a_node_that_exits_right_after_its_start_is_reported(mortal: LocalCluster) -> None:
    mortal.kill(2)
    properties = Path(mortal.directory, "broker-2", "server.properties")
    good = properties.read_text()
    properties.write_text(f"{good}num.partitions=x\n")
    said = refused("lab", "2", "start", "--dir", mortal.directory)
    assert said.startswith("broker-2 has ended: ") and "Invalid value x for configuration num.partitions" in said
    properties.write_text(good)
    mortal.start_node(2)


def test_status_shows_which_nodes_are_paused_and_which_are_still_starting(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path) as cluster:
        cluster.kill(cluster.controller.id)
        cluster.kill(1)
        cluster.start_node(1, wait=False)  # without a controller it serves no clients
        assert states(cluster) == {"1": "starting", "100": "down"}
        cluster.pause(1)
        assert states(cluster) == {"1": "paused", "100": "down"}
        cluster.resume(1)
        cluster.start_node(100)
        wait_until(lambda: states(cluster) == {"1": "up", "100": "up"}, "both to serve")


def states(cluster: LocalCluster) -> dict[str, str]:
    """Return the state of each node, from `milena status`."""
    shown = subprocess.run([*MILENA, "status", "--dir", cluster.directory], capture_output=True, text=True, check=False)
    rows = [row.split() for row in shown.stdout.splitlines()[1:]]
    assert shown.returncode == ("down" in [row[2] for row in rows])
    return {row[0]: row[2] for row in rows}


def test_a_killed_controller_can_be_restarted(mortal: LocalCluster) -> None:
    mortal.kill(mortal.controller.id)
    mortal.restart(mortal.controller.id)
    milena("topic", "create", "after-the-controller", "-b", mortal.bootstrap)


def test_a_second_process_of_a_running_node_is_refused(mortal: LocalCluster) -> None:
    """nodes.json still describes the first process afterwards."""
    before = mortal.nodes
    files = sorted(os.listdir(before[1].log_dirs[0]))
    said = refused("node", f"{mortal.directory}/broker-1/server.properties")
    assert sorted(os.listdir(before[1].log_dirs[0])) == files  # in particular no clean-shutdown file
    assert said == f"listener PLAINTEXT: cannot listen on {before[1].listeners['PLAINTEXT']}: address already in use"
    assert mortal.nodes == before


def test_stopping_a_cluster_also_stops_restarted_nodes(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path, overrides=IMPATIENT)
    cluster.kill(1)
    cluster.restart(1)
    pids = processes(cluster)
    milena("down", "--dir", cluster.directory)
    wait_gone([cluster.pid], LIMIT)
    assert not any(map(runs, pids))
    assert Path(tmp_path, "broker-1", "data", ".kafka_cleanshutdown").exists()
    cluster.stop()


def test_the_nodes_shut_down_cleanly_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path, brokers=2, topics=["kept:2:1"])
    cluster.kill(1, signal.SIGTERM)
    cluster.restart(1)  # the new process is no child of `milena up`, but belongs to its cluster
    milena("produce", "kept", "-b", cluster.bootstrap, stdin="".join(f"{number}\n" for number in range(50)))
    milena("consume", "kept", "--group", "readers", "--from-beginning", "--max", "20", "-b", cluster.bootstrap)
    cluster.kill_supervisor()
    assert not processes(cluster)
    assert len(list(tmp_path.glob("broker-*/data/.kafka_cleanshutdown"))) == 2
    # starts at once despite session timeouts of nine seconds, because the brokers shut down cleanly
    with LocalCluster.start(tmp_path, brokers=2) as again:
        found = milena("consume", "kept", "--from-beginning", "--exit", "-b", again.bootstrap).out.split()
        # from the beginning where the group has no committed offset: the first 20 may all be from one partition
        following = ("--group", "readers", "--from-beginning", "--max", "30")
        rest = milena("consume", "kept", *following, "-b", again.bootstrap).out.split()
    assert sorted(map(int, found)) == list(range(50))
    assert len(set(rest)) == 30


def test_a_broker_without_controller_also_shuts_down_with_its_supervisor(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path, overrides=IMPATIENT)
    cluster.kill(cluster.controller.id)
    cluster.kill_supervisor()
    assert not processes(cluster)
    assert Path(tmp_path, "broker-1", "data", ".kafka_cleanshutdown").exists()


def test_no_data_is_lost_when_every_process_is_killed(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, overrides=IMPATIENT, topics=["kept:1:1"]) as cluster:
        milena("produce", "kept", "-b", cluster.bootstrap, stdin="one\ntwo\n")
        pids = processes(cluster)
        os.kill(cluster.pid, signal.SIGSTOP)  # so that it does not notice that they end
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_gone(pids, LIMIT)
        os.kill(cluster.pid, signal.SIGKILL)
    assert processes(cluster) == pids  # no process was left to update nodes.json
    assert milena("status", "--dir", str(tmp_path), code=1).out.count(" down ") == 2
    with LocalCluster.start(tmp_path, overrides=IMPATIENT) as again:
        assert milena("consume", "kept", "--from-beginning", "-e", "-b", again.bootstrap).out == "one\ntwo\n"


def test_a_node_of_a_cluster_runs_without_its_supervisor(tmp_path: Path) -> None:
    """After `milena down`, each node can be run manually with its server.properties."""
    with LocalCluster.start(tmp_path) as cluster:
        pass
    assert not processes(cluster)
    with node(tmp_path, str(tmp_path / "controller-100" / "server.properties")) as controller:
        assert processes(cluster) == [controller.process.pid]
        with node(tmp_path, str(tmp_path / "broker-1" / "server.properties")) as broker:
            milena("topic", "create", "by-hand", "-b", broker.address)
            assert processes(cluster) == [broker.process.pid, controller.process.pid]
    assert not processes(cluster)


def test_a_cluster_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """The process ends without calling ``stop``, as a test run that is killed."""
    program = (
        "import os, sys, milena.testing.local_cluster as m; m.LocalCluster.start(sys.argv[1]); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=LIMIT, check=False)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run([*MILENA, "down", "--dir", str(tmp_path)], timeout=LIMIT, check=True)
    assert milena("status", "--dir", str(tmp_path), code=1).out.count(" down ") == 2
