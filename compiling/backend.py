"""The build backend (PEP 517): setuptools, and mypyc's requirements if a wheel with extensions is requested.

``MILENA_COMPILE=1`` in the environment asks for one. Without it, and for an editable install in any case, the build
needs setuptools alone.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from setuptools import build_meta
from setuptools.build_meta import (  # what a frontend looks for here
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

VARIABLE: Final = "MILENA_COMPILE"
TYPES: Final = ("mypy", "types-PyYAML", "uvloop")
"""The requirements of the extra ``dev`` that mypyc reads besides the dependencies: it compiles by their types."""


def wants_extensions() -> bool:
    """Whether setup.py, which runs for every step of a build, must compile."""
    return _asked() and "bdist_wheel" in sys.argv


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return [*needed, *compile_requirements()] if _asked() else needed


def compile_requirements() -> list[str]:
    """Return requirements as in pyproject.toml."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    development = [one for one in project["optional-dependencies"]["dev"] if _name(one) in TYPES]
    return [*project["dependencies"], *development]


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _asked() -> bool:
    return os.environ.get(VARIABLE) == "1"
