"""A container engine, as a person uses it: `docker`, and compose as plugin or as separate command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.wire.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGE: Final = os.environ.get("MILENA_IMAGE", "milena-kafka")
KCAT: Final = os.environ.get("KCAT_IMAGE", "milena-kcat")
LIMIT: Final = 120
RETRIES: Final = 3
"""The failed checks in a row after which a container of the image is unhealthy."""


def docker(*arguments: str, check: bool = True) -> str:
    """Run docker and return its standard output. Raises AssertionError with its standard error if it fails."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert not check or done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def missing() -> str | None:
    """Return why no container can be run; None if one can."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    if not docker("version", "--format", "{{.Server.Version}}", check=False):
        return "no engine answers (.ci/containers.py starts one)"
    if not docker("image", "inspect", "--format", "{{.Id}}", IMAGE, check=False):
        return f"there is no image {IMAGE} (.ci/containers.py image, or docker build -t {IMAGE} .)"
    return None


def needs(*images: str) -> None:
    """Skip the test if the engine lacks one of the images."""
    for image in images:
        if not docker("image", "inspect", "--format", "{{.Id}}", image, check=False):
            pytest.skip(f"there is no image {image} (.ci/containers.py tests makes it)")


def compose_command() -> list[str] | None:
    """Return the command line of compose; None if neither Compose v2 nor docker-compose is installed."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None:
            done = subprocess.run([*command, "version"], capture_output=True, check=False, timeout=LIMIT)
            if done.returncode == 0:
                return command
    return None


@dataclass
class Container:
    """A container, by name or id."""

    id: str

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(docker("inspect", "--format", "{{json .State}}", self.id))
        return found

    @property
    def health(self) -> str:
        return str(self.state()["Health"]["Status"])

    @property
    def log(self) -> str:
        """Return its standard output and standard error."""
        done = subprocess.run(["docker", "logs", self.id], capture_output=True, text=True, timeout=LIMIT, check=True)
        return done.stdout + done.stderr

    def wait_healthy(self) -> None:
        wait_until(lambda: self.health == "healthy", f"{self.id} is not healthy", LIMIT)

    def wait_healthy_or_done(self) -> None:
        """Wait until it is healthy or has ended with exit code 0."""

        def done() -> bool:
            state = self.state()
            return (state["Status"], state["ExitCode"]) == ("exited", 0) or state["Health"]["Status"] == "healthy"

        wait_until(done, f"{self.id} is not healthy", LIMIT)

    @property
    def ready(self) -> bool:
        """Whether its node serves now, as /ready says."""
        checked = ["docker", "exec", self.id, "/etc/kafka/docker/health", "ready"]
        return subprocess.run(checked, capture_output=True, timeout=LIMIT, check=False).returncode == 0

    def wait_checked(self) -> None:
        """Wait until the engine has checked its health as often as it takes to become unhealthy."""
        last = self.state()["Health"]["Log"][-1]["Start"]
        wait_until(lambda: len(self._checks_after(last)) >= RETRIES, f"{self.id} is not checked", LIMIT)

    def _checks_after(self, start: str) -> list[str]:
        return [check["Start"] for check in self.state()["Health"]["Log"] if check["Start"] > start]

    def wait_logged(self, text: str) -> None:
        wait_until(lambda: text in self.log, f"{self.id} has not logged {text!r}", LIMIT)

    def command_begun(self) -> dict[str, str]:
        """Wait until its first process is the command instead of the shell, and return the fields of that process's
        /proc status. The engine must be on this machine."""

        def status() -> dict[str, str]:
            lines = Path(f"/proc/{self.state()['Pid']}/status").read_text().splitlines()
            return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

        wait_until(lambda: status()["Name"].startswith(("milena", "python")), f"{self.id} has not begun", LIMIT)
        return status()

    def ended(self) -> int:
        """Wait until it has ended; return the exit code."""
        wait_until(lambda: self.state()["Status"] == "exited", f"{self.id} runs", LIMIT)
        return int(self.state()["ExitCode"])

    def run(self, *command: str) -> str:
        """Run a command in it; return the command's standard output."""
        return docker("exec", self.id, *command)


def given(variables: Mapping[str, str]) -> list[str]:
    """Return the options of `docker run` for these environment variables."""
    return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]


@contextmanager
def started(*options: str, image: str = IMAGE, command: Sequence[str] = ()) -> Iterator[Container]:
    """A container of `docker run`, which is removed at the end, with its anonymous volumes."""
    container = Container(docker("run", "--detach", *options, image, *command))
    try:
        yield container
    finally:
        docker("rm", "--force", "--volumes", container.id)


@dataclass
class Project:
    """A compose file under its own project name."""

    command: list[str]
    name: str
    file: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Path | None = None
    """The file for `--env-file`."""
    override: Path | None = None
    """A second compose file, which overrides keys of the first."""

    def compose(self, *arguments: str) -> str:
        chosen = ["-f", str(self.override)] if self.override else []
        chosen += ["--env-file", str(self.settings)] if self.settings else []
        done = subprocess.run(
            [*self.command, "-p", self.name, "-f", str(self.file), *chosen, *arguments],
            capture_output=True,
            text=True,
            timeout=3 * LIMIT,
            check=False,
            env={**os.environ, **self.variables},
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def container(self, service: str) -> Container:
        return Container(self.compose("ps", "-q", service).strip())

    def client(self, *arguments: str) -> str:
        """Run kcat in the project's network; return its standard output."""
        return self.compose("run", "--rm", "-T", "--no-deps", "kcat", *arguments)

    def up(self) -> None:
        """Start the containers; return when all that have a health check are healthy, or have ended without error."""
        self.compose("up", "--detach")
        for identity in self.compose("ps", "-q").split():
            if "Health" in Container(identity).state():
                Container(identity).wait_healthy_or_done()

    @contextmanager
    def running(self) -> Iterator[Project]:
        """The started project. At the end `compose down` removes it with its volumes."""
        try:
            self.up()
            yield self
        finally:
            self.compose("down", "--volumes")
