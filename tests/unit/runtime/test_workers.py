"""Work beside the loop: in a process that may be killed, or as a plain call."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from select import select

import pytest

from milena.lab.world.world import World, simulate
from milena.protocol.records.batch import CorruptBatch
from milena.runtime import workers
from milena.runtime.disk import Disk, Report, Worker, WorkerEnded
from milena.runtime.faults.power_loss import LossyDisk
from milena.runtime.files import RealDisk
from milena.runtime.worker_process import NICENESS
from milena.runtime.workers import PlainWorker, ProcessWorker

ROOT = Path(__file__).parents[3]


def counting(_disk: Disk, report: Report, upto: int, amount: int = 1 << 20) -> Iterator[int]:
    for number in range(upto):
        report(amount)
        yield number


def naming(_disk: Disk, _report: Report) -> Iterator[tuple[int, int]]:
    yield os.getpid(), os.nice(0)


def hashing(_disk: Disk, _report: Report) -> Iterator[int]:
    yield hash(b"a key")


def listing(disk: Disk, _report: Report, folder: str) -> Iterator[list[str]]:
    yield disk.list(folder)


def failing(_disk: Disk, _report: Report, error: Exception) -> Iterator[int]:
    yield 1
    raise error


def sleeping(_disk: Disk, report: Report) -> Iterator[int]:
    yield 1
    while True:
        report(1 << 20)
        signal.pause()


class Odd(Exception):
    """Has other arguments than it is made with."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def odd(_disk: Disk, _report: Report) -> Iterator[int]:
    yield 1
    raise Odd(1, 2)


def answering(_disk: Disk, report: Report, question: str) -> Generator[str, str, None]:
    answer = yield question
    while answer:
        report(1 << 20)
        answer = yield f"{question} {answer}"


async def unpaced(_amount: int) -> None:
    pass


@pytest.fixture(params=["process", "plain"])
async def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    disk = RealDisk()
    found: Worker = ProcessWorker() if request.param == "process" else PlainWorker(disk)
    yield found
    found.end()
    await found.ended()
    disk.close()


async def test_values_come_in_order_and_what_was_done_is_paced(worker: Worker, tmp_path: Path) -> None:
    amounts: list[int] = []

    async def paced(amount: int) -> None:
        amounts.append(amount)

    for _ in range(2):
        steps = worker.run(counting, paced, 3)
        assert [await steps.next() for _ in range(4)] == [0, 1, 2, None]
    assert sum(amounts) == 6 << 20
    (tmp_path / "file").touch()
    assert await worker.run(listing, unpaced, str(tmp_path)).next() == ["file"]


async def test_work_that_is_small_is_paced_too(worker: Worker) -> None:
    amounts: list[int] = []

    async def paced(amount: int) -> None:
        amounts.append(amount)

    for _ in range(2):
        steps = worker.run(counting, paced, 3, 1000)
        assert [await steps.next() for _ in range(4)] == [0, 1, 2, None]
    assert sum(amounts) == 6000


def busy(_disk: Disk, report: Report, seconds: float) -> Iterator[int]:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    report(1 << 20)
    yield 1


async def test_a_process_reports_the_cpu_time_of_its_works(worker: Worker) -> None:
    for works in (1, 2):
        assert await worker.run(busy, unpaced, 0.02).next() == 1
        if isinstance(worker, ProcessWorker):
            assert worker.cpu_seconds is not None and worker.cpu_seconds >= 0.02 * works
        else:
            assert worker.cpu_seconds is None


async def test_the_work_receives_answers(worker: Worker) -> None:
    for name in ("one", "two"):
        steps = worker.run(answering, unpaced, name)
        assert await steps.next() == name
        assert [await steps.next(answer) for answer in ("yes", "no")] == [f"{name} yes", f"{name} no"]
        assert await steps.next() is None, "no answer"


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "broken", "/a"), CorruptBatch("at 7"), ValueError("no room")],
    ids=["os", "batch", "value"],
)
async def test_what_the_work_raises_is_raised_here(worker: Worker, error: Exception) -> None:
    steps = worker.run(failing, unpaced, error)
    assert await steps.next() == 1
    with pytest.raises(type(error)) as raised:
        await steps.next()
    assert raised.value.args == error.args
    assert getattr(raised.value, "filename", None) == getattr(error, "filename", None)


async def test_what_is_raised_by_the_pacing_ends_the_work(worker: Worker) -> None:
    async def refused(_amount: int) -> None:
        raise PermissionError("enough")

    with pytest.raises(PermissionError):
        await worker.run(counting, refused, 3).next()
    worker.end()
    await worker.ended()
    assert await worker.run(counting, unpaced, 1).next() == 0


def niceness(disk: Disk, report: Report) -> Iterator[int]:
    yield os.getpriority(os.PRIO_PROCESS, 0)


async def test_a_process_has_a_low_priority_unless_its_work_is_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    own, worker = os.getpriority(os.PRIO_PROCESS, 0), ProcessWorker()
    found: list[int | None] = []
    processes: set[int | None] = set()
    for urgent in (False, False, True, True, False):
        worker.set_urgent(urgent)
        steps = worker.run(niceness, unpaced)
        found.append(await steps.next())
        assert await steps.next() is None
        processes.add(worker.pid)
    worker.end()
    await worker.ended()
    low = min(own + NICENESS, 19)
    assert found == [low, low, own, own, low]
    assert len(processes) == 3


async def test_each_process_hashes_with_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    found = set()
    for _ in range(2):
        worker = ProcessWorker()
        found.add(await worker.run(hashing, unpaced).next())
        worker.end()
        await worker.ended()
    assert len(found) == 2


async def test_an_error_that_cannot_be_sent_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    worker = ProcessWorker()
    steps = worker.run(odd, unpaced)
    assert await steps.next() == 1
    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        await steps.next()
    worker.end()
    await worker.ended()


async def test_a_killed_process_is_reported_and_the_next_work_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    worker = RealDisk().worker()
    assert isinstance(worker, ProcessWorker)

    async def name() -> int:
        named = await worker.run(naming, unpaced).next()
        assert named is not None
        assert named == (worker.pid, min(os.nice(0) + 10, 19))
        return named[0]

    first = await name()

    async def kill(_amount: int) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)

    steps = worker.run(sleeping, kill)
    assert await steps.next() == 1
    with pytest.raises(WorkerEnded):
        await steps.next()
    worker.end()
    await worker.ended()
    assert worker.pid is None
    assert await name() != first
    worker.end()
    await worker.ended()


async def test_a_process_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with pytest.raises(WorkerEnded):
        await ProcessWorker().run(counting, unpaced, 1).next()


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("b'a banner of another program'", id="no length"),
        pytest.param("(5).to_bytes(8, 'big') + b'other'", id="no pickle"),
        pytest.param("(16).to_bytes(8, 'big') + b'cmilena\\nMissing\\n.'", id="an unknown class"),
        pytest.param("(2).to_bytes(8, 'big') + b'N.'", id="no answer"),
    ],
)
async def test_an_invalid_answer_is_reported(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    code = f"import signal, sys; sys.stdout.buffer.write({written}); sys.stdout.flush(); signal.pause()"
    monkeypatch.setattr(workers, "_CODE", code)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    worker = ProcessWorker()
    with pytest.raises(WorkerEnded, match="answer"):
        async with asyncio.timeout(30):
            await worker.run(counting, unpaced, 1).next()
    worker.end()
    await worker.ended()


def test_a_worker_ends_with_its_parent() -> None:
    code = """
import asyncio, os, sys
from milena.runtime.workers import ProcessWorker
from tests.unit.runtime.test_workers import sleeping
async def main():
    worker = ProcessWorker()
    async def paced(amount):
        print(worker.pid, flush=True)
        asyncio.get_running_loop().call_later(0.1, os._exit, 0)
    steps = worker.run(sleeping, paced)
    await steps.next()
    await steps.next()
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=30,
    )  # returns when the last of the two has closed the pipe
    try:
        process = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return
    assert select([process], [], [], 30)[0]  # it has ended, or does so at once
    os.close(process)


def test_in_the_simulation_a_worker_of_a_dead_node_does_nothing() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        disk = machine.start().disk
        worker = disk.worker()
        steps = worker.run(writing, unpaced)
        assert await steps.next() == 1
        machine.kill()
        with pytest.raises(OSError):
            await steps.next()
        worker.end()
        await worker.ended()
        assert machine.start().disk.list("/") == ["file"]

    simulate(run, seed=1)


def writing(disk: Disk, _report: Report) -> Iterator[int]:
    disk.open("/file", create=True).close()
    try:
        yield 1
        yield 2
    finally:
        disk.remove("/file")


def test_a_watched_disk_sees_what_its_worker_writes(tmp_path: Path) -> None:
    async def run(disk: LossyDisk) -> None:
        assert await disk.worker().run(appending, unpaced, str(tmp_path / "file")).next() == 1

    disk = LossyDisk(str(tmp_path / "spare"), [str(tmp_path)])
    asyncio.run(run(disk))
    disk.cut()
    assert not (tmp_path / "file").exists()


def appending(disk: Disk, _report: Report, path: str) -> Iterator[int]:
    disk.open(path, create=True).append([b"unsynced"])
    yield 1
