"""Resident memory and open descriptors of a process, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MIB = 1 << 20


def resident(pid: int | None) -> int:
    """Return the bytes of resident memory. Skips the test if there is no /proc."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("needs Linux's /proc")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def descriptors(pid: int | None) -> int:
    """Return how many files and sockets a process has open. Skips the test if there is no /proc."""
    folder = Path(f"/proc/{pid}/fd")
    if not folder.exists():
        pytest.skip("needs Linux's /proc")
    return len(os.listdir(folder))
