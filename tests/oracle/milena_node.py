"""One Milena node, started with a properties file, without a Milena cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running_milena(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A running node, which shuts down cleanly at the end."""
    command = [sys.executable, "-P", "-m", "milena", "node", str(file)]
    # A node takes all KAFKA_* variables for configuration, also the tests' KAFKA_LIBS.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    said = file.with_name("milena.err")
    with said.open("a") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready "), said.read_text()
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)
