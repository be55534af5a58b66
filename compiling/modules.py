"""The compiled modules: those of the packages in ``modules.toml``, except for listed ones with a reason."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = ROOT / "compiling" / "modules.toml"


def name_of(path: Path, root: Path = ROOT) -> str:
    """Return the module name of a file."""
    return ".".join(path.relative_to(root).with_suffix("").parts)


def reasons() -> dict[str, str]:
    """Return why a module of a compiled package stays interpreted."""
    listed: dict[str, str] = tomllib.loads(LIST.read_text())["interpreted"]
    return listed


def _listed(name: str, listed: dict[str, str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in listed)


def compiled_files(root: Path = ROOT) -> list[Path]:
    """Return the files to compile, sorted. ``__init__`` files are not compiled: they contain almost nothing."""
    packages: list[str] = tomllib.loads(LIST.read_text())["packages"]
    out = reasons()
    found = []
    for package in packages:
        place = root.joinpath(*package.split("."))
        files = [place.with_suffix(".py")] if not place.is_dir() else sorted(place.rglob("*.py"))
        found += [file for file in files if file.name != "__init__.py" and not _listed(name_of(file, root), out)]
    return sorted(found)
