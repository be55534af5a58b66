"""Fixtures that skip all container tests, with the reason, if no container can be run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config

from milena.up.ports import free
from tests.containers.engine import KCAT, ROOT, Project, compose_command, docker, missing


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """Skip the tests unless a container engine answers and has the image."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"no container can be run: {reason}")


@pytest.fixture(scope="session")
def project(engine: None) -> Callable[..., Project]:
    """A function that makes a project of a compose file; by default of the one in the root, on free ports."""
    command = compose_command()
    if command is None:
        pytest.skip("there is neither Compose v2 nor docker-compose (Debian: apt-get install docker-compose)")
    metrics = ("METRICS_PORT_CONTROLLER", *(f"METRICS_PORT_{number}" for number in (1, 2, 3)))
    names = ("PORT_1", "PORT_2", "PORT_3", "HTTP_PORT", *metrics)

    def make(
        name: str,
        file: Path = ROOT / "docker-compose.yml",
        settings: Path | None = None,
        variables: Mapping[str, str] | None = None,
        override: Path | None = None,
    ) -> Project:
        ports = dict(zip(names, map(str, free("127.0.0.1", len(names))), strict=True))
        given = {"KCAT_IMAGE": KCAT, **ports, **(variables or {})}
        return Project(command, f"milena-{name}-{os.getpid()}", file, given, settings, override)

    return make


@pytest.fixture
def without_reaper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Testcontainers without its reaper, whose image would have to be pulled; checks that no container is left."""
    before = set(docker("ps", "-a", "-q").split())
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    yield
    left = docker("ps", "-a", "-q", "--filter", "label=org.testcontainers").split()
    assert not set(left) - before
