"""Nodes and supervisors that die: what is reported, what comes back, and that no process is left."""

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
"""Nobody waits long for a broker that was killed with its controller, or for a controller that is not there; a busy
machine does not fence a broker either."""


def processes(cluster: LocalCluster) -> list[int]:
    return [node.pid for node in cluster.nodes.values() if node.pid is not None]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers. Each test that kills a node brings it back."""
    with LocalCluster.start(tmp_path_factory.mktemp("mortal"), brokers=2, overrides=IMPATIENT) as running:
        yield running


def test_nodes_json_is_true_while_nodes_come_and_go(mortal: LocalCluster) -> None:
    before = mortal.nodes
    assert all(found.pid and runs(found.pid) for found in before.values())
    mortal.kill(2)
    assert mortal.nodes == {**before, 2: before[2]._replace(pid=None)}
    mortal.restart(2)
    after = mortal.nodes
    assert after == {**before, 2: before[2]._replace(pid=after[2].pid)}
    assert after[2].pid not in (None, before[2].pid)


def test_a_node_that_dies_is_left_down_and_reported(mortal: LocalCluster) -> None:
    mortal.kill(1)
    told = Path(mortal.directory, "up.stderr").read_text().splitlines()
    assert f"broker-1 was ended by signal 9; to restart it: milena lab broker-1 start --dir {mortal.directory}" in told
    rows = milena("status", "--dir", mortal.directory, code=1).out.splitlines()[1:]
    assert [row.split()[:4] for row in rows if " down " in row] == [["1", "broker", "down", "-"]]
    mortal.restart(1)
    assert milena("status", "--dir", mortal.directory).out.count(" up ") == 3


def test_a_node_that_is_stopped_in_order_can_come_back_too(mortal: LocalCluster) -> None:
    mortal.kill(2, signal.SIGTERM)
    assert Path(mortal.nodes[2].log_dirs[0], ".kafka_cleanshutdown").exists()
    mortal.restart(2)
    assert answers(mortal.nodes[2].listeners["PLAINTEXT"])


def test_a_node_whose_folder_is_gone_is_made_anew(mortal: LocalCluster) -> None:
    """As after `rm -rf`, or where a disk was replaced."""
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


def test_a_node_that_ends_at_once_is_told(mortal: LocalCluster) -> None:
    mortal.kill(2)
    properties = Path(mortal.directory, "broker-2", "server.properties")
    good = properties.read_text()
    properties.write_text(f"{good}num.partitions=x\n")
    said = refused("lab", "2", "start", "--dir", mortal.directory)
    assert said.startswith("broker-2 has ended: ") and "Invalid value x for configuration num.partitions" in said
    properties.write_text(good)
    mortal.start_node(2)


def test_status_tells_what_is_paused_and_what_does_not_serve_yet(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path) as cluster:
        cluster.kill(cluster.controller.id)
        cluster.kill(1)
        cluster.start_node(1, wait=False)  # without a controller it serves nobody
        assert states(cluster) == {"1": "starting", "100": "down"}
        cluster.pause(1)
        assert states(cluster) == {"1": "paused", "100": "down"}
        cluster.resume(1)
        cluster.start_node(100)
        wait_until(lambda: states(cluster) == {"1": "up", "100": "up"}, "both to serve")


def states(cluster: LocalCluster) -> dict[str, str]:
    """By node, as `milena status` shows them."""
    shown = subprocess.run([*MILENA, "status", "--dir", cluster.directory], capture_output=True, text=True, check=False)
    rows = [row.split() for row in shown.stdout.splitlines()[1:]]
    assert shown.returncode == ("down" in [row[2] for row in rows])
    return {row[0]: row[2] for row in rows}


def test_a_controller_comes_back_too(mortal: LocalCluster) -> None:
    mortal.kill(mortal.controller.id)
    mortal.restart(mortal.controller.id)
    milena("topic", "create", "after-the-controller", "-b", mortal.bootstrap)


def test_a_node_runs_once(mortal: LocalCluster) -> None:
    """The second one is refused, and nodes.json goes on to tell of the first."""
    before = mortal.nodes
    files = sorted(os.listdir(before[1].log_dirs[0]))
    said = refused("node", f"{mortal.directory}/broker-1/server.properties")
    assert sorted(os.listdir(before[1].log_dirs[0])) == files  # no clean-shutdown file above all
    assert said == f"listener PLAINTEXT: cannot listen on {before[1].listeners['PLAINTEXT']}: address already in use"
    assert mortal.nodes == before


def test_a_cluster_is_stopped_with_the_nodes_that_were_brought_back(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path, overrides=IMPATIENT)
    cluster.kill(1)
    cluster.restart(1)
    pids = processes(cluster)
    milena("down", "--dir", cluster.directory)
    wait_gone([cluster.pid], LIMIT)
    assert not any(map(runs, pids))
    assert Path(tmp_path, "broker-1", "data", ".kafka_cleanshutdown").exists()
    cluster.stop()


def test_the_nodes_end_in_order_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path, brokers=2, topics=["kept:2:1"])
    cluster.kill(1, signal.SIGTERM)
    cluster.restart(1)  # this one is no child of `milena up`, and belongs to it all the same
    milena("produce", "kept", "-b", cluster.bootstrap, stdin="".join(f"{number}\n" for number in range(50)))
    milena("consume", "kept", "--group", "readers", "--from-beginning", "--max", "20", "-b", cluster.bootstrap)
    cluster.kill_supervisor()
    assert not processes(cluster)
    assert len(list(tmp_path.glob("broker-*/data/.kafka_cleanshutdown"))) == 2
    # at once, though the sessions are of the usual nine seconds: the brokers have left in order
    with LocalCluster.start(tmp_path, brokers=2) as again:
        found = milena("consume", "kept", "--from-beginning", "--exit", "-b", again.bootstrap).out.split()
        # from the beginning where the group has committed nothing: the first 20 may all be of one partition
        following = ("--group", "readers", "--from-beginning", "--max", "30")
        rest = milena("consume", "kept", *following, "-b", again.bootstrap).out.split()
    assert sorted(map(int, found)) == list(range(50))
    assert len(set(rest)) == 30


def test_a_broker_without_controller_ends_with_its_supervisor_too(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path, overrides=IMPATIENT)
    cluster.kill(cluster.controller.id)
    cluster.kill_supervisor()
    assert not processes(cluster)
    assert Path(tmp_path, "broker-1", "data", ".kafka_cleanshutdown").exists()


def test_all_data_is_there_when_every_process_was_killed(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, overrides=IMPATIENT, topics=["kept:1:1"]) as cluster:
        milena("produce", "kept", "-b", cluster.bootstrap, stdin="one\ntwo\n")
        pids = processes(cluster)
        os.kill(cluster.pid, signal.SIGSTOP)  # it shall not see them die
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_gone(pids, LIMIT)
        os.kill(cluster.pid, signal.SIGKILL)
    assert processes(cluster) == pids  # nobody was left to write it
    assert milena("status", "--dir", str(tmp_path), code=1).out.count(" down ") == 2
    with LocalCluster.start(tmp_path, overrides=IMPATIENT) as again:
        assert milena("consume", "kept", "--from-beginning", "-e", "-b", again.bootstrap).out == "one\ntwo\n"


def test_a_node_of_a_cluster_runs_without_its_supervisor(tmp_path: Path) -> None:
    """After `milena down`, each node can be run by hand from its file."""
    with LocalCluster.start(tmp_path) as cluster:
        pass
    assert not processes(cluster)
    with node(tmp_path, str(tmp_path / "controller-100" / "server.properties")) as controller:
        assert processes(cluster) == [controller.process.pid]
        with node(tmp_path, str(tmp_path / "broker-1" / "server.properties")) as broker:
            milena("topic", "create", "by-hand", "-b", broker.address)
            assert processes(cluster) == [broker.process.pid, controller.process.pid]
    assert not processes(cluster)


def test_a_cluster_ends_with_the_process_that_used_it(tmp_path: Path) -> None:
    """As with a test run that is killed: nobody calls ``stop``."""
    program = (
        "import os, sys, milena.testing.local_cluster as m; m.LocalCluster.start(sys.argv[1]); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=LIMIT, check=False)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run([*MILENA, "down", "--dir", str(tmp_path)], timeout=LIMIT, check=True)
    assert milena("status", "--dir", str(tmp_path), code=1).out.count(" down ") == 2
