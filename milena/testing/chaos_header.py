"""The header of a report on a run: command, versions, build flavour, date and machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from milena import VERSION
from milena.form import running


def header(command: str, libraries: Sequence[str]) -> Mapping[str, object]:
    """Return what identifies a run. ``libraries``: names of client libraries."""
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(libraries),
        "build": running(),
        "machine": machine(),
    }


def versions(libraries: Sequence[str]) -> Mapping[str, str]:
    """Return the versions of Milena, Python, and of these libraries as far as they are Python packages."""
    found = {"milena": VERSION, "python": platform.python_version()}
    for name in libraries:
        try:
            found.setdefault(name, version(name))
        except PackageNotFoundError:
            continue
    return found


def machine() -> Mapping[str, object]:
    """Return the operating system, the processor, its cores and the memory in MiB (None if it is unknown)."""
    try:
        memory: int | None = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    except (ValueError, OSError):
        memory = None
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory in MiB": memory,
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model name of the processor, or its architecture if the system does not report a name."""
    try:
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
