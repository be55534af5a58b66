"""`docker-compose.yml`, without Docker: its command, with the folders that it mounts somewhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from milena.testing.local_cluster import LIMIT
from milena.up.ports import free
from tests.wire.command import milena, without_kafka

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = (".*", "__pycache__", "tests", "build", "dist", "*-data", "*.egg-info")

pytestmark = pytest.mark.timeout(600)


def test_its_command_installs_from_a_folder_that_it_does_not_touch_and_starts(tmp_path: Path) -> None:
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["milena"]
    assert service["volumes"] == [".:/src:ro", "data:/data"]
    source, data = tmp_path / "src", tmp_path / "data"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    subprocess.run([sys.executable, ROOT / ".ci" / "make_venv.py", tmp_path / "venv"], check=True, capture_output=True)
    before = sorted(source.rglob("*"))
    *shell, script = service["command"]
    for inside, outside in (("/src", source), ("/tmp/source", tmp_path / "source"), ("/data", data)):
        assert f" {inside}" in script
        script = script.replace(f" {inside}", f" {outside}")
    port = free("127.0.0.1", 3)[0]
    script = script.replace("exec milena up", f"exec milena up --detach --port {port}")
    installed = {name: value for name, value in without_kafka().items() if name != "MILENA_PURE"}
    environment = {**installed, "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.defpath}"}
    try:
        for _ in ("first start", "the same container again"):
            started = subprocess.run(
                [*shell, script], env=environment, capture_output=True, text=True, timeout=8 * LIMIT, check=False
            )
            addresses = ",".join(f"localhost:{number}" for number in range(port, port + 3))
            assert started.stdout == f"ready bootstrap={addresses}\n", started.stderr
            assert sorted(source.rglob("*")) == before
            milena("down", "--dir", str(data / "cluster"))
    finally:
        if (data / "cluster" / "settings").exists():
            milena("down", "--dir", str(data / "cluster"))
