"""Processes that are held while a snapshot is written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from milena.steering.snapshots import held
from milena.up.processes import is_paused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def nodes() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_processes_are_held_within_the_block_and_paused_ones_stay_so(nodes: list[subprocess.Popen[bytes]]) -> None:
    pids = [node.pid for node in nodes]
    nodes[1].send_signal(signal.SIGSTOP)
    wait_until(lambda: is_paused(pids[1]))
    with held(pids):
        assert [is_paused(pid) for pid in pids] == [True, True]
    wait_until(lambda: [is_paused(pid) for pid in pids] == [False, True])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_processes_continue_when_the_one_that_holds_them_is_killed(
    nodes: list[subprocess.Popen[bytes]], number: int
) -> None:
    pids = [node.pid for node in nodes]
    code = f"from milena.steering.snapshots import held\nwith held({pids}): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert [is_paused(pid) for pid in pids] == [True, True]
        holder.send_signal(number)
        holder.wait(30)
    wait_until(lambda: [is_paused(pid) for pid in pids] == [False, False])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
