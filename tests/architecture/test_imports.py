"""Imports point down: the contract in pyproject.toml, run as a test."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.architecture.source import PACKAGES, ROOT, modules, tree


def test_the_packages_keep_their_contracts() -> None:
    linter = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_every_package_folder_has_an_init() -> None:
    folders = {path.parent for path in modules() if path.parts[0] in PACKAGES and path.parts[0] != "tests"}
    assert not [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()]


def test_no_test_module_imports_another_one() -> None:
    """What several test modules use is in a helper module next to them."""
    imports = [
        f"{path}: {module}"
        for path in modules()
        if path.parts[0] == "tests"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in _imported(node)
        if module.startswith("tests.") and any(part.startswith("test_") for part in module.split("."))
    ]
    assert not imports


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    return names if isinstance(node, ast.Import) else [f"{node.module}.{name}" for name in names]


@pytest.mark.parametrize("room", ["broker", "controller", "protocol", "tiered"])
def test_the_links_at_the_root_make_no_second_copy_of_a_module(room: str) -> None:
    """``import broker`` in the root would otherwise load ``milena.broker`` again, under another name."""
    if not (ROOT / room).exists():
        pytest.skip("this checkout has no links")
    tried = subprocess.run([sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True)
    assert f"ImportError: import milena.{room}, not {room}" in tried.stderr
