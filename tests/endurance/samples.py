"""Samples of memory, descriptors and threads of a process, and the verdict whether they grow."""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.wire.memory import MIB, resident

MEMORY_GROWTH: Final = 0.15
"""The share by which the memory of the last third of a run may exceed that of the second third."""
MEMORY_SLACK: Final = 6 * MIB
DESCRIPTOR_SLACK: Final = 25
"""So many more descriptors may be open in the last third, since segments and connections change."""


class Sample(NamedTuple):
    """The resources of a process at one time."""

    minute: float
    memory: int
    threads: int
    kinds: Counter[str]
    """The number of descriptors of each kind."""

    @property
    def descriptors(self) -> int:
        return self.kinds.total()


def sample(pid: int, minute: float) -> Sample:
    return Sample(minute, resident(pid), len(os.listdir(f"/proc/{pid}/task")), descriptor_kinds(pid))


def descriptor_kinds(pid: int) -> Counter[str]:
    """The open descriptors of a process: sockets, files of segments by their suffix, and others by name."""
    kinds: Counter[str] = Counter()
    folder = f"/proc/{pid}/fd"
    for entry in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{entry}")
        except FileNotFoundError:
            continue
        kinds[_kind(target)] += 1
    return kinds


def _kind(target: str) -> str:
    if target.startswith(("socket:", "pipe:", "anon_inode:")):
        return target.partition(":[")[0]
    gone = " (deleted)" if target.endswith(" (deleted)") else ""
    name = os.path.basename(target.removesuffix(" (deleted)"))
    place = "tier " if "/remote" in target else ""
    suffix = re.search(r"\.(log|index|timeindex|txnindex|snapshot)(?=\.|$)", name)
    return f"{place}{suffix.group() if suffix else name}{gone}"


def verdict(name: str, samples: Sequence[Sample]) -> list[str]:
    """Returns a fault for each resource that grew from the second third of the run to the last one."""
    third = len(samples) // 3
    if third < 3:
        return []
    second, last = samples[third : 2 * third], samples[2 * third :]
    found = []
    memory, later = (statistics.median(one.memory for one in part) for part in (second, last))
    if later > memory * (1 + MEMORY_GROWTH) + MEMORY_SLACK:
        found.append(f"{name}: memory grew from {memory / MIB:.0f} to {later / MIB:.0f} MiB")
    open_, later = (statistics.median(one.descriptors for one in part) for part in (second, last))
    if later > open_ + DESCRIPTOR_SLACK:
        found.append(f"{name}: descriptors grew from {open_:.0f} to {later:.0f}")
    threads, later = (statistics.median(one.threads for one in part) for part in (second, last))
    if later > threads + 2:
        found.append(f"{name}: threads grew from {threads:.0f} to {later:.0f}")
    return found
