"""Imports point down: the contract in pyproject.toml, run as a test."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.architecture.source import ROOMS, ROOT, modules, tree


def test_the_rooms_keep_their_contract() -> None:
    linter = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_the_pytest_plugin_imports_only_milena() -> None:
    """Other people's projects have a storage.py and a runtime.py of their own."""
    (plugin,) = [path for path in modules() if path.as_posix() == "milena/pytest_plugin.py"]
    foreign = {
        top
        for statement in ast.walk(tree(plugin))
        for top in imported_tops(statement)
        if top in ROOMS and top != "milena"
    }
    assert not foreign


def imported_tops(statement: ast.AST) -> list[str]:
    match statement:
        case ast.Import(names=names):
            return [name.name.split(".")[0] for name in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.split(".")[0]]
        case _:
            return []


def test_every_package_folder_has_an_init() -> None:
    folders = {path.parent for path in modules() if path.parts[0] in ROOMS and path.parts[0] != "tests"}
    assert not [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()]
