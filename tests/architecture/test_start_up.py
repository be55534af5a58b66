"""Start-up counts in milliseconds: what a process must not have imported by the time it serves."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "aiokafka", "anyio", "argparse", "asyncio.__main__", "click", "confluent_kafka", "email", "fsspec", "ftplib",
    "http", "hypothesis", "importlib.metadata", "kafka", "milena.lab", "milena.pipeline", "milena.protocol.apis",
    "msgspec", "multiprocessing", "pydoc", "pytest", "rich", "setuptools", "structlog.dev", "tests", "unittest",
    "urllib.request", "xml",
)  # fmt: skip
"""Top modules (with what lies below them) that no role of a running node needs."""


def imported_by(statement: str) -> set[str]:
    """Names of the modules in a fresh interpreter after ``statement``, as nodes are started (-P)."""
    listing = subprocess.run(
        [sys.executable, "-P", "-c", f"{statement}\nimport sys\nprint(' '.join(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert listing.returncode == 0, listing.stderr
    return set(listing.stdout.split())


def heavy(loaded: set[str]) -> list[str]:
    return sorted(name for name in loaded for top in HEAVY if name == top or name.startswith(f"{top}."))


@pytest.mark.parametrize(
    "module",
    [
        "milena.commands.node",
        "milena.controller.server",
        "milena.broker.server",
        "milena.runtime.process",
        "milena.runtime.tcp.sockets",
        "milena.runtime.files",
    ],
)
def test_a_node_imports_nothing_it_does_not_need(module: str) -> None:
    assert heavy(imported_by(f"import {module}")) == []


def test_the_controller_imports_no_broker_and_the_broker_no_controller() -> None:
    assert not [name for name in imported_by("import milena.controller.server") if name.split(".")[0] == "broker"]
    assert not [name for name in imported_by("import milena.broker.server") if name.split(".")[0] == "controller"]


@pytest.mark.parametrize("script", ["topics", "api_versions", "console_producer", "console_consumer", "groups"])
def test_a_script_imports_nothing_that_it_does_not_need(script: str) -> None:
    loaded = imported_by(f"import milena.scripts.{script}")
    assert heavy(loaded) == []
    assert not [name for name in loaded if name.startswith(("milena.broker", "milena.controller", "milena.storage"))]


def test_a_script_does_not_import_ssl() -> None:
    run = "import runpy, sys\nsys.argv[1:] = ['kafka-topics', '--version']\n"
    run += "try:\n    runpy.run_module('milena.scripts', run_name='__main__')\nexcept SystemExit:\n    pass"
    loaded = imported_by(run)
    assert "asyncio" in loaded
    assert "ssl" not in loaded


def test_the_supervisor_needs_no_event_loop() -> None:
    loaded = imported_by("import milena.up.supervisor")
    assert not {"asyncio", "structlog", "kio", "argparse"} & loaded


def test_the_list_of_scenarios_needs_neither_yaml_nor_a_node() -> None:
    loaded = imported_by("from milena.commands.scenario.command import main\nmain(['list'])")
    assert "milena.lab.scenarios.heads" in loaded
    assert not {"asyncio", "structlog", "yaml", "milena.lab.scenarios.script"} & loaded
