"""The source files of this project, as git knows them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("benchmarks", "milena", "tests")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file git tracks or would add, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(
        sorted(
            Path(name)
            for name in set(listing.stdout.split("\0"))
            if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()
        )
    )


def modules() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


@cache
def text(path: Path) -> str:
    return (ROOT / path).read_text()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path), str(path))
