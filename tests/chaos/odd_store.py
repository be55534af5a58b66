"""An fsspec file system, ``odd://FOLDER``, whose answers go odd while a file says so: for the processes of a test,
which find it by an entry point on their PYTHONPATH."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fsspec.implementations.local import LocalFileSystem

MOOD: Final = "ODD_STORE_MOOD"
"""The variable with the path of the file that names one of ``MOODS``; no file: it answers as it should.
The calls that were answered oddly are noted beside it, by mood."""
PAGE: Final = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"


def _raise_json(_: Callable[[], Any], __: str) -> Any:
    return json.loads(PAGE)


def _raise_value(_: Callable[[], Any], name: str) -> Any:
    raise ValueError(f"{name}: the answer has no such header")


def _cancel(_: Callable[[], Any], __: str) -> Any:
    raise asyncio.CancelledError


def _page(call: Callable[[], Any], name: str) -> Any:
    """What is read is a page; the rest fails as a library does that reads one."""
    return PAGE if name == "cat_file" else _raise_json(call, name)


def _cut(call: Callable[[], Any], _: str) -> Any:
    """Reads end early."""
    found = call()
    return found[: len(found) // 2] if isinstance(found, bytes) else found


def _resize(call: Callable[[], Any], name: str) -> Any:
    """Listings tell other sizes, and reads give more than was asked for."""
    found = call()
    if name == "ls":
        return [{**one, "size": (one["size"] or 0) // 2} for one in found]
    return found + PAGE if isinstance(found, bytes) else found


MOODS: Final[dict[str, Callable[[Callable[[], Any], str], Any]]] = {
    "page": _page,
    "json": _raise_json,
    "value": _raise_value,
    "cancelled": _cancel,
    "short": _cut,
    "sizes": _resize,
}


def _odd(call: Callable[[], Any], name: str) -> Any:
    try:
        mood = Path(os.environ[MOOD]).read_text()
    except FileNotFoundError:
        return call()
    with open(f"{os.environ[MOOD]}.{mood}", "a") as met:
        met.write(f"{name}\n")
    return MOODS[mood](call, name)


class OddFileSystem(LocalFileSystem):  # type: ignore[misc]
    """What the tier calls may be odd."""

    protocol = "odd"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(os.fspath(path).removeprefix("odd://"))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> Any:
        return _odd(lambda: LocalFileSystem.cat_file(self, path, start=start, end=end), "cat_file")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> Any:
        return _odd(lambda: LocalFileSystem.pipe_file(self, path, value), "pipe_file")

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> Any:
        return _odd(lambda: LocalFileSystem.put_file(self, lpath, rpath), "put_file")

    def mv(self, path1: str, path2: str, **_: Any) -> Any:
        return _odd(lambda: LocalFileSystem.mv(self, path1, path2), "mv")

    def rm_file(self, path: str) -> Any:
        return _odd(lambda: LocalFileSystem.rm_file(self, path), "rm_file")

    def exists(self, path: str, **_: Any) -> Any:
        return _odd(lambda: LocalFileSystem.exists(self, path), "exists")

    def ls(self, path: str, detail: bool = False, **_: Any) -> Any:
        return _odd(lambda: LocalFileSystem.ls(self, path, detail=detail), "ls")


def entry_point(folder: Path) -> None:
    """Make in ``folder`` what a process with it on its PYTHONPATH finds ``odd`` by."""
    about = folder / "odd_store-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: odd_store\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fsspec.specs]\nodd = odd_store:OddFileSystem\n")
    (folder / "odd_store.py").write_bytes(Path(__file__).read_bytes())
