"""Compose files of public projects, unchanged except for the image: the services become healthy, and clients in their
network and on this machine write and read.

``tests/foreign/compose_files.yaml`` has the files. Two of their features are newer than docker-compose 1.29 and
engines before 25, so there a file gets the one without ``depends_on.restart``, and an alias for each host name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from milena.up.ports import refusal
from tests.containers.engine import IMAGE, KCAT, ROOT, Project, docker, needs
from tests.containers.work import written_and_read

ALL: Final = yaml.safe_load((ROOT / "tests/foreign/compose_files.yaml").read_text())
KAFKA: Final = "apache/kafka"
pytestmark = [pytest.mark.costly, pytest.mark.timeout(300)]


def adapted(entry: dict[str, Any], command: list[str]) -> dict[str, Any]:
    """Return the compose file with Milena's image, for this compose and this engine."""
    services = copy.deepcopy(entry["services"])
    for service in services.values():
        assert KAFKA in service["image"]
        service["image"] = IMAGE
        if command == ["docker-compose"]:
            for other in service.get("depends_on", {}).values():
                other.pop("restart", None)
        if "hostname" in service and int(docker("version", "--format", "{{.Server.Version}}").split(".")[0]) < 25:
            service["networks"] = {"default": {"aliases": [service["hostname"]]}}
    return {"services": services, "volumes": entry.get("volumes", {})}


@pytest.mark.parametrize("entry", ALL, ids=[entry["id"] for entry in ALL])
def test_a_file_becomes_healthy_and_serves_clients(
    project: Callable[..., Project], tmp_path: Path, entry: dict[str, Any]
) -> None:
    needs(KCAT)
    published = [port for service in entry["services"].values() for port in service.get("ports", [])]
    busy = [port for port in published if refusal("0.0.0.0", int(port.split(":")[0])) is not None]
    if busy:
        pytest.skip(f"the file publishes ports that are in use: {', '.join(busy)}")
    started = project("foreign", tmp_path / "docker-compose.yml")
    started.file.write_text(yaml.safe_dump(adapted(entry, started.command)))
    with started.running():
        inside = entry["inside"]
        assert f" at {inside}" in kcat(started, "-b", inside, "-L")
        kcat(started, "-b", inside, "-P", "-t", "inside", stdin="hello")
        assert kcat(started, "-b", inside, "-C", "-t", "inside", "-e") == "hello"
        if "created" in entry:
            assert f'topic "{entry["created"]}"' in kcat(started, "-b", inside, "-L")
        if "outside" in entry:
            assert sorted(written_and_read(entry["outside"])) == [str(number).encode() for number in range(10)]


def kcat(started: Project, *arguments: str, stdin: str | None = None) -> str:
    """Run kcat in the services' network; return its standard output."""
    network = ("--network", f"{started.name}_default")
    if stdin is None:
        return docker("run", "--rm", *network, KCAT, "kcat", "-q", *arguments)
    words = " ".join(arguments)
    return docker("run", "--rm", *network, KCAT, "sh", "-c", f"echo {stdin} | kcat {words}")
