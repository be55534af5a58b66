"""Logs whose many segments a cleaning replaces by few, and crashes during the cleaning."""

from __future__ import annotations

from milena.lab.world.world import Machine
from tests.unit.storage.cleaning.cleaned_logs import Kept, KeyedLog
from tests.unit.storage.logs import LogFolder

CHANGES = ("append", "write", "truncate", "sync", "rename", "remove")


def long_log(folder: LogFolder) -> KeyedLog:
    """A log of many segments, of which a cleaning keeps few records."""
    keyed = KeyedLog(folder)
    for number in range(30):
        if number % 3 == 0:
            keyed.log.roll()
        keyed.write((b"%d" % (number % 5), b"%d" % number * 20), (b"only %d" % number, None if number % 7 else b"x"))
    return keyed


def compacted(path: object) -> LogFolder:
    return LogFolder(path, segment_bytes=1000, index_interval_bytes=0, cleanup_policy=("compact",))


def last_values(records: list[Kept]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records}


class Crash:
    """Kills the machine, or cuts its power, before the change with a given number to a file of the log."""

    def __init__(self, machine: Machine, number: int, *, power: bool) -> None:
        self.machine = machine
        self.left = number
        self.power = power

    def __call__(self, operation: str, path: str) -> None:
        if operation in CHANGES and path.startswith("/data/topic-0"):
            self.left -= 1
            if self.left < 0:
                self.machine.power_off() if self.power else self.machine.kill()
                raise OSError("the machine is down")
