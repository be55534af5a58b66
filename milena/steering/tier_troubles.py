"""Faults of a broker's remote tier for tests: the tier is unavailable, is slow, loses objects, or gives wrong answers.

They are applied below the broker's stores: as the disk of the folder store, and around the file system of the fsspec
store. Logs of segments that are already open, and data sent from them with sendfile, are not affected.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar, cast

from milena.runtime.context import Runtime
from milena.runtime.faults.failing_disk import TroubledDisk
from milena.runtime.process import TIER_THREADS
from milena.tiered.store import tier_names
from milena.tiered.store.fsspec_system import FileSystem, Info
from milena.tiered.store.remote_storage import LOG_SUFFIX

T = TypeVar("T")
PAGE: Final = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"


def _json_error(_: Callable[[], object], __: str) -> object:
    return json.loads(PAGE)


def _value_error(_: Callable[[], object], name: str) -> object:
    raise ValueError(f"{name}: the answer has no such header")


def _cancelled(_: Callable[[], object], __: str) -> object:
    raise asyncio.CancelledError


def _page(call: Callable[[], object], name: str) -> object:
    """Return an error page in place of an object; other calls fail like a library that parses such a page."""
    return PAGE if name == "cat_file" else _json_error(call, name)


def _short(call: Callable[[], object], _: str) -> object:
    """Return only the first half of what is read."""
    answer = call()
    return answer[: len(answer) // 2] if isinstance(answer, bytes) else answer


def _sizes(call: Callable[[], object], _: str) -> object:
    """Return wrong sizes in listings, and more bytes than requested in reads."""
    answer = call()
    if isinstance(answer, list):
        return [{**one, "size": (one["size"] or 0) // 2} for one in answer]
    return answer + PAGE if isinstance(answer, bytes) else answer


ODD_ANSWERS: Final[Mapping[str, Callable[[Callable[[], object], str], object]]] = {
    "page": _page,
    "json": _json_error,
    "value": _value_error,
    "cancelled": _cancelled,
    "short": _short,
    "sizes": _sizes,
}
"""Wrong answers of a store, by name: a function of the right call and the name of the method."""
EVERYTHING: Final = ""
"""The folder that contains all paths."""


class TierTroubles:
    """The faults of one broker. ``disk`` and ``connect_store`` are the ports that the broker must use."""

    def __init__(self, runtime: Runtime, memory: str) -> None:
        """``runtime``: the broker's ports without faults. ``memory``: a file that keeps the lost objects' paths across
        restarts. Raises OSError."""
        self.lost = _lines(memory)
        """The paths of the objects lost so far."""
        self._memory = memory
        self._random = runtime.random
        self._connect_store = runtime.connect_store
        self.disk = TroubledDisk(TIER_THREADS, runtime.clock, lambda path: self.written(path, self.disk.remove))
        """Both stores do all their work with its ``offload``."""
        self._away = False
        self._odd = ""
        self.odd = 0
        """Wrong answers so far."""
        self._refused = 0
        self._lose = 0.0

    def set(self, *, away: bool, delay: float, lose: float, odd: str = "") -> None:
        """``away``: each call of the store fails with EIO. ``delay``: seconds that each of its work items waits before
        it begins. ``lose``: the share of new segments whose log, the object with the records, is removed after it was
        written. ``odd``: a key of ``ODD_ANSWERS``; only stores of fsspec give such answers."""
        self._away, self._lose, self.disk.delay, self._odd = away, lose, delay, odd
        if away:
            self.disk.faults.fail(EVERYTHING)
        else:
            self.disk.faults.heal(EVERYTHING)

    def active(self) -> list[dict[str, object]]:
        """Return the fault that is set, as the lab command that sets it; an empty list without one."""
        delay_ms = round(self.disk.delay * 1000, 3)
        fault = {"away": self._away, "delay_ms": delay_ms, "lose": self._lose, "odd": self._odd}
        return [{"command": "break_tier", **fault}] if any(fault.values()) else []

    def forget_lost(self) -> None:
        """Forget the lost objects' paths. Raises OSError."""
        self.lost.clear()
        with suppress(FileNotFoundError):
            os.unlink(self._memory)

    @property
    def failed(self) -> int:
        """The number of calls that failed while the tier was unavailable."""
        return self._refused + self.disk.faults.failed

    def connect_store(self, url: str, options: Mapping[str, object]) -> tuple[object, str]:
        """As ``Runtime.connect_store``."""
        self.check(url)
        system, path = self._connect_store(url, options)
        return TroubledSystem(cast("FileSystem", system), self), path

    def answer(self, path: str, name: str, call: Callable[[], T]) -> T:
        """Return what a call of the file system returns, or a wrong answer. Raise OSError while the tier is away."""
        self.check(path)
        if not self._odd:
            return call()
        self.odd += 1
        return cast("T", ODD_ANSWERS[self._odd](call, name))

    def check(self, path: str) -> None:
        """Raise OSError while the tier is unavailable."""
        if self._away:
            self._refused += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def written(self, path: str, remove: Callable[[str], object]) -> None:
        """Remove an object that was just written, if it is selected to be lost."""
        folder, _, name = path.rpartition("/")
        found = tier_names.parse_object(name)
        if found is None or found.suffix != LOG_SUFFIX or f"/{tier_names.ROOT}/" not in f"/{folder}":
            return
        if self._random.uniform(0, 1) < self._lose:
            with open(self._memory, "a", encoding="utf-8") as file:
                file.write(f"{path}\n")
            self.lost.append(path)
            remove(path)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


class TroubledSystem:
    """Implements ``tiered.store.fsspec_system.FileSystem`` on top of another one."""

    def __init__(self, system: FileSystem, troubles: TierTroubles) -> None:
        self._system = system
        self._troubles = troubles
        self.protocol = system.protocol

    def cat_file(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        call = lambda: self._system.cat_file(path, start=start, end=end)  # noqa: E731
        return self._troubles.answer(path, "cat_file", call)

    def pipe_file(self, path: str, value: bytes) -> None:
        self._troubles.answer(path, "pipe_file", lambda: self._system.pipe_file(path, value))
        self._troubles.written(path, self._system.rm_file)

    def put_file(self, lpath: str, rpath: str) -> None:
        self._troubles.answer(rpath, "put_file", lambda: self._system.put_file(lpath, rpath))
        self._troubles.written(rpath, self._system.rm_file)

    def mv(self, path1: str, path2: str) -> None:
        self._troubles.answer(path1, "mv", lambda: self._system.mv(path1, path2))
        self._troubles.written(path2, self._system.rm_file)

    def rm_file(self, path: str) -> object:
        return self._troubles.answer(path, "rm_file", lambda: self._system.rm_file(path))

    def rmdir(self, path: str) -> object:
        self._troubles.check(path)
        return self._system.rmdir(path)

    def rm(self, path: str, recursive: bool = False) -> object:
        self._troubles.check(path)
        return self._system.rm(path, recursive=recursive)

    def exists(self, path: str) -> bool:
        return self._troubles.answer(path, "exists", lambda: self._system.exists(path))

    def ls(self, path: str, detail: bool = True) -> list[Info]:
        return self._troubles.answer(path, "ls", lambda: self._system.ls(path, detail=detail))

    def makedirs(self, path: str, exist_ok: bool = False) -> object:
        self._troubles.check(path)
        return self._system.makedirs(path, exist_ok=exist_ok)

    def invalidate_cache(self, path: str | None = None) -> object:
        return self._system.invalidate_cache(path)
