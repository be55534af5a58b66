"""Files that are not modules are part of the installed package, too."""

from __future__ import annotations

import tomllib
from pathlib import PurePath

from tests.architecture.source import ROOT, tracked


def test_each_file_of_the_package_is_a_module_or_listed_as_its_data() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["milena"]
    files = [PurePath(path).relative_to("milena") for path in tracked() if PurePath(path).parts[0] == "milena"]
    others = [file for file in files if file.suffix != ".py"]
    assert [str(file) for file in others if not any(file.match(pattern) for pattern in patterns)] == []
    assert len(others) > 3
