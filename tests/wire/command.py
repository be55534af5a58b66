"""The command `milena` as a person runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from milena.testing.local_cluster import LIMIT, MILENA
from tests.wire.forks import run

STARTED = "Kafka Server started (kafka.server.KafkaRaftServer)\n"
"""The end of a line of `milena container`: that of Kafka for which tools wait."""


class Said(NamedTuple):
    """Standard output and standard error of a command."""

    out: str
    err: str


def milena(*arguments: str, stdin: str = "", code: int = 0, env: Mapping[str, str] | None = None) -> Said:
    """Run a command to its end. It must exit with ``code``, and must not print a stack trace."""
    ended, out, err = run(arguments, stdin, os.environ if env is None else env, LIMIT)
    assert ended == code, out + err
    assert "Traceback" not in out + err
    return Said(out, err)


def refused(*arguments: str, code: int = 1, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
    """Run a command that must fail; return the error message, which is its last line, without ``milena:``."""
    said = milena(*arguments, code=code, stdin=stdin, env=env)
    sentences = [line for line in said.err.splitlines() if line.startswith("milena: ")]
    assert [said.err.splitlines()[-1]] == sentences, said.err
    return sentences[0].removeprefix("milena: ")


class Node(NamedTuple):
    """A running `milena node`."""

    process: subprocess.Popen[str]
    listeners: Mapping[str, str]
    """``host:port`` by listener name, from the ready line."""
    log: Path

    @property
    def address(self) -> str:
        return self.listeners["PLAINTEXT"]


@contextmanager
def node(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, code: int = 0, command: str = "node"
) -> Iterator[Node]:
    """Run `milena node ARGUMENTS`, or `milena container` (``command``). It is ready on entry and has shut down on exit,
    with exit code ``code`` (not 0 if the test kills it). Its log goes below ``folder``."""
    log = folder / "node.log"
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*MILENA, command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, env=env
        )
    assert process.stdout is not None
    try:
        ready, _, addresses = process.stdout.readline().partition(" ")
        assert ready == "ready", log.read_text()
        if command == "container":
            assert process.stdout.readline().endswith(STARTED)
        listeners = dict(address.split("://") for address in addresses.split()[1:])
        yield Node(process, listeners, log)
    finally:
        process.terminate()
        rest = process.communicate(timeout=LIMIT)[0]
    assert (rest, process.returncode) == ("", code), log.read_text()


def without_kafka() -> dict[str, str]:
    """Return this process's environment without the variables that a node reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "CLUSTER_ID"))}


def program(name: str) -> str:
    """The path of a program of the system; the test is skipped without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found
