"""Disk errors at each step of a cleaning, and crashes during recovery, do not damage the log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from milena.lab.world.world import Machine, World, simulate
from milena.protocol.errors import KafkaError
from tests.unit.storage.cleaning.cleaned_logs import KeyedLog
from tests.unit.storage.cleaning.swapped_logs import Crash, compacted, last_values, long_log
from tests.unit.storage.logs import values_of

FULL = ("open", "append", "write", "sync", "rename")


class Fault:
    """One operation on the log's files fails."""

    def __init__(self, number: int, at: int, operations: tuple[str, ...]) -> None:
        self.number = number
        self.left = at
        self.operations = operations

    def __call__(self, operation: str, path: str) -> None:
        if path.startswith("/data/topic-0") and (not self.operations or operation in self.operations):
            self.left -= 1
            if self.left == -1:
                raise OSError(self.number, os.strerror(self.number), path)


def started(machine: Machine) -> KeyedLog:
    """A log that is completely synced."""
    folder = compacted("/data")
    folder.disk = machine.start().disk
    keyed = long_log(folder)
    keyed.log.flush()
    folder.disk.sync_folder("/")
    return keyed


def at_each_point(run: Callable[[World, int], bool]) -> int:
    """Call ``run`` with increasing numbers until it returns that this point was not reached; returns how many were."""
    at, reached = 0, True

    async def one(world: World) -> None:
        nonlocal reached
        reached = run(world, at)

    while reached:
        simulate(one, seed=at)
        at += 1
    return at - 1


@pytest.mark.parametrize(
    ("number", "operations"), [(errno.ENOSPC, FULL), (errno.EIO, ())], ids=["a full disk", "a failing disk"]
)
def test_a_disk_error_at_any_point_loses_no_records(number: int, operations: tuple[str, ...]) -> None:
    swaps = 0

    def run(world: World, at: int) -> bool:
        nonlocal swaps
        machine = world.machine("one")
        keyed = started(machine)
        folder, written, end = keyed.folder, keyed.records(), keyed.log.log_end_offset
        machine.storage.before = Fault(number, at, operations)
        failed: Exception | None = None
        try:
            keyed.clean()
        except (OSError, KafkaError) as error:
            failed = error
        machine.storage.before = lambda _operation, _path: None
        if failed is None:
            return False
        if isinstance(failed, KafkaError):  # during the swap: the directory is offline until a restart
            swaps += 1
            keyed.log = folder.open(clean=False)
            keyed.log.set_high_watermark(end)
        # Otherwise the log stays online.
        assert not [name for name in folder.names() if name.endswith((".cleaned", ".swap"))]
        assert keyed.log.log_end_offset == end
        assert last_values(keyed.records()) == last_values(written)
        assert values_of(keyed.log) == [record.value or b"" for record in keyed.records()]
        keyed.clean()
        assert len(keyed.records()) < len(written) / 2 + 10
        assert last_values(keyed.records()) == last_values(written)
        return True

    assert at_each_point(run) > 60
    assert swaps > 10


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("first", range(0, 90, 7))
def test_a_second_crash_during_recovery_of_a_swap_loses_no_records(first: int, power: bool) -> None:
    def run(world: World, at: int) -> bool:
        machine = world.machine("one")
        keyed = started(machine)
        folder, written, end = keyed.folder, keyed.records(), keyed.log.log_end_offset
        machine.storage.before = Crash(machine, first, power=power)
        with suppress(OSError, KafkaError):
            keyed.clean()
        for crash in (Crash(machine, at, power=power), None):
            machine.storage.before = crash or (lambda _operation, _path: None)
            folder.disk = machine.start().disk
            try:
                keyed.log = folder.open(clean=False, recovery_point=end if at % 2 else 0)
            except (OSError, KafkaError):
                continue
            break
        machine.storage.before = lambda _operation, _path: None
        assert keyed.log.log_end_offset == end
        assert last_values(keyed.records()) == last_values(written)
        assert values_of(keyed.log) == [record.value or b"" for record in keyed.records()]
        assert not [name for name in folder.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        return crash is None

    assert at_each_point(run) > 3
