"""The build flavour of Milena that runs: pure Python, or with the hot modules compiled by mypyc.

A wheel for a platform contains both, and the compiled flavour runs. In a checkout the pure one runs; ``make compiled``
builds a tree with the compiled one. ``MILENA_PURE=1`` and ``MILENA_PURE=0`` choose. The choice is made once, when
``milena`` is imported, so this module imports next to nothing: every start of a node and of a command waits for it.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Final

VARIABLE: Final = "MILENA_PURE"
TREE: Final = os.path.join("build", "compiled")
"""Relative to the root of the checkout."""
NOTE: Final = "sources.txt"
_LIBRARY: Final = "compiled__mypyc"
_COMPILED: Final = "milena.protocol.records.batch"
"""A module that is compiled in the compiled flavour."""


def choose(package_path: list[str], flavour: str) -> None:
    """Import ``milena``'s modules from ``flavour``, the value of MILENA_PURE.

    Raises SystemExit if that flavour is not available.
    """
    here = package_path[0]
    if flavour == "1":
        if _has_extensions(here):
            sys.meta_path.insert(0, _SourcesAlone())
    elif flavour != "0":
        raise SystemExit(f"milena: {VARIABLE} is {flavour!r}; it must be 1 (pure Python) or 0 (the compiled form)")
    elif not _has_extensions(here):
        package_path[:] = [_checked_tree(here)]


def running() -> str:
    """``compiled`` or ``pure``."""
    from importlib.util import find_spec

    found = find_spec(_COMPILED)
    return "compiled" if found is not None and str(found.origin).endswith(tuple(EXTENSION_SUFFIXES)) else "pure"


def note_of(package: str) -> str:
    """Return the record of a tree's sources: their digest, then their stamps."""
    return f"{_digest_of(package)}\n{_stamps_of(package)}"


def _stamps_of(package: str) -> str:
    """Return names, sizes and times of the package's sources, which change when a source is edited."""
    lines = []
    for path in _sources(package):
        found = os.stat(path)
        lines.append(f"{path[len(package) :]} {found.st_size} {found.st_mtime_ns}\n")
    return "".join(lines)


def _digest_of(package: str) -> str:
    """The content of the package's sources, in short."""
    from hashlib import sha256

    digest = sha256()
    for path in _sources(package):
        with open(path, "rb") as file:
            digest.update(path[len(package) :].encode() + b"\0" + file.read() + b"\0")
    return digest.hexdigest()


def _sources(package: str) -> list[str]:
    found = []
    folders = [package]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".yaml")) and entry.is_file():  # an editor's lock leads nowhere
                    found.append(entry.path)
                elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                    folders.append(entry.path)
    return sorted(found)


def _has_extensions(package: str) -> bool:
    return any(os.path.exists(os.path.join(package, _LIBRARY + suffix)) for suffix in EXTENSION_SUFFIXES)


def _checked_tree(package: str) -> str:
    root = os.path.dirname(package)
    if not os.path.exists(os.path.join(root, "compiling", "modules.toml")):
        raise SystemExit(
            f"milena: {VARIABLE}=0, but {package} is pure Python; a wheel for this platform contains the compiled form"
        )
    tree = os.path.join(root, TREE)
    try:
        with open(os.path.join(tree, NOTE), encoding="utf-8") as file:
            digest, _, stamps = file.read().partition("\n")
    except (OSError, ValueError):
        raise SystemExit(
            f"milena: {VARIABLE}=0, but there is no compiled form in {TREE}; `make compiled` builds it"
        ) from None
    if stamps != _stamps_of(package) and digest != _digest_of(package):
        raise SystemExit(f"milena: the compiled form in {TREE} is outdated; `make compiled` builds it again")
    compiled = os.path.join(tree, "milena")
    if not _has_extensions(compiled):
        raise SystemExit(f"milena: the compiled form in {TREE} is for another Python; `make compiled` builds it again")
    return compiled


class _SourcesAlone:
    """Finds this package's modules, ignoring extensions."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}
        """By folder: each lists its folder once."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not name.startswith("milena."):
            return None
        for place in path:
            finder = self._finders.get(place)
            if finder is None:
                finder = self._finders[place] = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(name)
            if spec is not None:
                return spec
        return None
