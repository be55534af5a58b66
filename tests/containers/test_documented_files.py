"""The compose files in docs/containers.md, unchanged except for the published ports."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from milena.up.ports import free
from tests.containers.engine import ROOT, Project
from tests.wire.command import milena
from tests.wire.waiting import wait_until

FILES = re.findall(r"^```yaml\n(services:.*?)^```", (ROOT / "docs/containers.md").read_text(), re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("file", "brokers"), list(zip(FILES, (1, 2), strict=True)), ids=["single", "isolated"])
def test_a_documented_compose_file_starts_a_cluster(
    project: Callable[..., Project], tmp_path: Path, file: str, brokers: int
) -> None:
    published = re.findall(r"- '(\d+):9092'", file)
    ports = [str(port) for port in free("127.0.0.1", len(published))]
    for documented, port in zip(published, ports, strict=True):
        file = file.replace(f"'{documented}:", f"'{port}:").replace(f"localhost:{documented}", f"localhost:{port}")
    (tmp_path / "docker-compose.yml").write_text(file)
    with project("documented", tmp_path / "docker-compose.yml").running():
        first = f"localhost:{ports[0]}"
        wait_until(
            lambda: len(milena("broker", "list", "-b", first).out.splitlines()) == brokers + 1, "a broker is missing"
        )
        milena("produce", "-b", first, "t", stdin="hello\n")
        for port in ports:
            assert "hello" in milena("consume", "-b", f"localhost:{port}", "t", "--from-beginning", "--exit").out
