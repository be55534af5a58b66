"""The system's figures for this process, under the names that Prometheus' clients use."""

from __future__ import annotations

import os
import time
from typing import Final

START_FIELD: Final = 19
"""The field of /proc/self/stat, counted after the command, with the start time of the process in ticks since boot."""


def cpu_seconds() -> float:
    """User and system time, in seconds."""
    return time.process_time()


def resident_bytes() -> int:
    """Resident memory; 0 if the system does not report it."""
    return _memory(1)


def virtual_bytes() -> int:
    """Virtual memory; 0 if the system does not report it."""
    return _memory(0)


def started_at() -> float:
    """Seconds since 1970; 0 if the system does not report it."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/stat") as system:
            ticks = int(stat.read().rpartition(")")[2].split()[START_FIELD])
            boot = next(int(line.split()[1]) for line in system if line.startswith("btime "))
    except (OSError, StopIteration):
        return 0.0
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def disk_bytes(field: str) -> int | None:
    """Bytes that this process has read from disks (``read_bytes``), or has caused to be written to them
    (``write_bytes``); None if the system does not report it."""
    try:
        with open("/proc/self/io") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(f"{field}: ")), None)
    except OSError:
        return None


def _memory(field: int) -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
