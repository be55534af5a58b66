"""Creates the topics of `milena up --topic` with `milena topic create`: the supervisor does not import a client."""

from __future__ import annotations

import os
import sys

from milena.command_line.errors import UserError


def create(bootstrap: str, name: str, partitions: str, replicas: str) -> list[str]:
    """Create a topic, unless it exists. Return warnings, such as for an existing topic of another size. Raises
    UserError with the command's error."""
    command = [sys.executable, "-P", "-m", "milena", "topic", "create", name, "--bootstrap-server", bootstrap]
    command += ["--partitions", partitions, "--replicas", replicas, "--if-not-exists", "--quiet"]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, writing, 2)]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as output:
        said = [line.strip() for line in output if line.strip()]
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        reason = said[-1].removeprefix("milena: ") if said else "`milena topic create` printed no error"
        raise UserError(f"--topic {name}: {reason}")
    return [f"--topic {name}: {line.removeprefix('warning: ')}" for line in said]
