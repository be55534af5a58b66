"""The extension modules, made by mypyc. Importing this module needs mypy and a C compiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mypyc.build import mypycify
from setuptools.command.build_ext import build_ext
from setuptools.extension import Extension

from compiling.modules import compiled_files

LIBRARY: Final = "milena.compiled"
"""The name of the shared library: by default it would be a top-level module."""
TARGET: Final = Path("build", "c")
_OPTIONS: Final = (
    "--strict",
    "--explicit-package-bases",
    "--no-warn-unreachable",
    "--disable-error-code=import-untyped",
)
_LEAN: Final = ["-fvisibility=hidden", "-fno-asynchronous-unwind-tables", "-ffunction-sections"]
_LINKED_LEAN: Final = ["-Wl,--gc-sections", "-Wl,-O1", "-Wl,-s"]
"""Flags for fewer resident pages of the library, direct calls between its functions, and no symbols of its own."""


def extensions(root: Path) -> list[Extension]:
    """Return the extensions of the package below ``root``, which must be the working directory: mypyc names modules by
    path."""
    files = [str(path.relative_to(root)) for path in compiled_files(root)]
    made = mypycify(
        [*_OPTIONS, *files],
        target_dir=str(TARGET),
        group_name=LIBRARY,
        opt_level="2",
        debug_level="0",  # tracebacks have the lines of the Python sources even so
        multi_file=True,
    )
    for extension in made:
        if sys.platform == "linux":
            extension.extra_compile_args += _LEAN
            extension.extra_link_args += _LINKED_LEAN
        extension.include_dirs.append(str(TARGET / "milena"))  # the header of a library with a dot in its name
    return list(made)


class ParallelBuild(build_ext):  # type: ignore[misc]  # setuptools has no types
    """``build_ext`` that compiles the files of one extension on all cores."""

    def build_extension(self, ext: Extension) -> None:
        compile_files = self.compiler.compile

        def compile_side_by_side(sources: Sequence[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda source: compile_files([source], **options), sources)
                return [path for paths in objects for path in paths]

        self.compiler.compile = compile_side_by_side
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_files
