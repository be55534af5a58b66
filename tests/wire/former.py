"""A cluster of `milena node` processes, each of which runs the current code or that of a former commit."""

from __future__ import annotations

import io
import signal
import subprocess
import sysconfig
import tarfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from milena.testing.local_cluster import LIMIT, MILENA
from milena.up.ports import free
from tests.wire.properties import write

ROOT: Final = Path(__file__).resolve().parents[2]
M3: Final = "1295e8a83a08acf8488fe808c671b1fcf096982b"
"""The last commit of the third milestone: its tier has neither fences nor compaction."""
WITH_WORK_ORDERS: Final = "712993b745f55432c1aeec2d8b88316e17684079"
"""The last commit whose leaders published work orders in the tier."""
CONTROLLER: Final = 100
TODAYS: Final = tuple(MILENA)


def former(folder: Path, commit: str = M3) -> tuple[str, ...]:
    """Copy the sources of a commit below ``folder`` and return the command line that runs its `milena`. Skips the test
    if the clone does not have the commit."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"commit {commit} is not in this clone (it is shallow, or no clone)")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder / "sources", filter="data")
    # That version takes modules on PYTHONPATH for the user's project, not for its own: it needs an environment.
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    packages = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    (packages / "former.pth").write_text(f"{folder / 'sources'}\n{sysconfig.get_paths()['purelib']}\n")
    # The former code has no compiled form, whichever form today's code has in this run.
    return ("env", "-u", "MILENA_PURE", str(python), "-I", "-m", "milena")


@dataclass
class Rolled:
    """One controller and some brokers with a tier in a folder, which are stopped and started one by one."""

    folder: Path
    overrides: Mapping[str, str]
    brokers: Sequence[int] = (1, 2, 3)
    processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = (CONTROLLER, *self.brokers)
        self.ports = dict(zip(nodes, free("127.0.0.1", len(nodes)), strict=True))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[number]}" for number in self.brokers)

    def log(self, number: int) -> str:
        return (self.folder / str(number) / "node.log").read_text()

    def properties(self, number: int, more: Mapping[str, str]) -> str:
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        role = "controller" if number == CONTROLLER else "broker"
        name = "CONTROLLER" if number == CONTROLLER else "PLAINTEXT"
        settings = {
            "process.roles": role,
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self.ports[CONTROLLER]}",
            "listeners": f"{name}://127.0.0.1:{self.ports[number]}",
            "log.dirs": str(folder / "data"),
            "remote.log.storage.system.enable": "true",
        }
        if role == "broker":
            settings["remote.log.storage.manager.class.name"] = (
                "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
            )
            settings["rsm.config.dir"] = str(self.folder / "tier")
        return write(folder, {**settings, **self.overrides, **more})

    def start(self, number: int, code: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        """Start a node; return when it is ready. Raises AssertionError with the node's log if it ends before."""
        properties = self.properties(number, more or {})
        with (self.folder / str(number) / "node.log").open("a") as log:
            process = subprocess.Popen([*code, "node", properties], stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes[number] = process
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready "), self.log(number)[-3000:]

    def refused(self, number: int, code: Sequence[str], more: Mapping[str, str] | None = None) -> str:
        """Start a node that must exit with an error; return what it logged since this start."""
        log = self.folder / str(number) / "node.log"
        begin = log.stat().st_size
        with log.open("a") as errors:
            started = [*code, "node", self.properties(number, more or {})]
            done = subprocess.run(started, stdout=subprocess.PIPE, stderr=errors, timeout=LIMIT, check=False)
        assert done.returncode == 1 and not done.stdout, done
        return log.read_bytes()[begin:].decode()

    def stop(self, number: int) -> None:
        """Shut a node down with SIGTERM."""
        process = self.processes.pop(number)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0, self.log(number)[-3000:]

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.communicate(timeout=LIMIT)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate(timeout=LIMIT)


@contextmanager
def rolled(folder: Path, code: Sequence[str], overrides: Mapping[str, str]) -> Iterator[Rolled]:
    """A cluster whose nodes all run ``code`` at first."""
    cluster = Rolled(folder, overrides)
    try:
        for number in (CONTROLLER, *cluster.brokers):
            cluster.start(number, code)
        yield cluster
    finally:
        cluster.end()
