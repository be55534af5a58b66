"""What the system says of this process, under the names that Prometheus' clients have for it."""

from __future__ import annotations

import os
import time
from typing import Final

START_FIELD: Final = 19
"""Of /proc/self/stat, behind the command: when the process began, in ticks after the system."""


def cpu_seconds() -> float:
    """User and system time."""
    return time.process_time()


def resident_bytes() -> int:
    """Memory that is in use; 0 if the system does not tell."""
    return _memory(1)


def virtual_bytes() -> int:
    """Memory that is mapped; 0 if the system does not tell."""
    return _memory(0)


def started_at() -> float:
    """Seconds since 1970; 0 if the system does not tell."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/stat") as system:
            ticks = int(stat.read().rpartition(")")[2].split()[START_FIELD])
            boot = next(int(line.split()[1]) for line in system if line.startswith("btime "))
    except (OSError, StopIteration):
        return 0.0
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def _memory(field: int) -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
