"""Which form of Milena runs: pure Python, or with the hot modules compiled by mypyc.

A wheel for a platform has both, and the compiled one runs. In a checkout the pure one runs; ``make compiled`` makes a
tree with the compiled one. ``MILENA_PURE=1`` and ``MILENA_PURE=0`` choose. This is decided once, when ``milena`` is
imported.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

VARIABLE: Final = "MILENA_PURE"
TREE: Final = Path("build", "compiled")
"""Below the checkout's root."""
NOTE: Final = "sources.json"
_LIBRARY: Final = "compiled__mypyc"


def choose(package_path: list[str], wanted: str) -> None:
    """Let ``milena``'s modules come from where ``wanted``, the variable's value, says.

    Raises SystemExit if that is not to be had: with another form than the one that was asked for, nothing is right.
    """
    here = Path(package_path[0])
    if wanted == "1":
        if _has_extensions(here):
            sys.meta_path.insert(0, _SourcesAlone())
    elif wanted != "0":
        raise SystemExit(f"milena: {VARIABLE} is {wanted!r}; 1 stands for pure Python, 0 for the compiled form")
    elif not _has_extensions(here):
        package_path[:] = [str(_checked_tree(here))]


def running() -> str:
    """``compiled`` or ``pure``."""
    from milena.protocol.records import batch

    return "compiled" if str(batch.__file__).endswith(tuple(EXTENSION_SUFFIXES)) else "pure"


def stamps_of(package: Path) -> str:
    """Names, sizes and times of the package's sources, in short: what changes if one of them is edited."""
    digest = sha256()
    for path in _sources(str(package)):
        found = os.stat(path)
        digest.update(f"{path[len(str(package)) :]} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def digest_of(package: Path) -> str:
    """The content of the package's sources, in short."""
    digest = sha256()
    for path in _sources(str(package)):
        digest.update(path[len(str(package)) :].encode() + b"\0" + Path(path).read_bytes())
    return digest.hexdigest()


def _sources(package: str) -> list[str]:
    found = []
    folders = [package]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".yaml")):
                    found.append(entry.path)
                elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                    folders.append(entry.path)
    return sorted(found)


def _has_extensions(package: Path) -> bool:
    return any((package / f"{_LIBRARY}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def _checked_tree(package: Path) -> Path:
    tree = package.parent / TREE
    try:
        note = json.loads((tree / NOTE).read_text())
    except (OSError, ValueError):
        raise SystemExit(
            f"milena: {VARIABLE}=0, but there is no compiled form in {TREE}; `make compiled` makes it"
        ) from None
    if note["stamps"] != stamps_of(package) and note["digest"] != digest_of(package):
        raise SystemExit(f"milena: the compiled form in {TREE} is of other sources; `make compiled` makes it anew")
    return tree / "milena"


class _SourcesAlone:
    """Finds this package's modules without looking at extensions."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not name.startswith("milena."):
            return None
        for place in path:
            spec = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
            if spec is not None:
                return spec
        return None
