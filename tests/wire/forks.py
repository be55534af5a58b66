"""Runs `milena` in forks of a process that has imported most modules, because a new Python starts slowly.

Each command is a separate process with its own arguments, environment, working directory and standard streams.
Variables that Python and `milena/__init__.py` read at their start are an exception: the test run's values hold.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import Final

from milena.runtime.lean_import import lean_import

IMPORTED: Final = ("structlog", "milena.client.admin", "milena.client.group_consumer", "milena.runtime.process")
STREAMS: Final = ("in", "out", "err")


def run(arguments: Sequence[str], stdin: str, environment: Mapping[str, str], limit: float) -> tuple[int, str, str]:
    """Run a command to its end. Return its exit code, standard output and standard error.

    Raises TimeoutError, and ends the command, if it takes more than ``limit`` seconds."""
    with tempfile.TemporaryDirectory(prefix="milena-command-") as folder:
        source, out, err = (Path(folder, name) for name in STREAMS)
        os.mkfifo(source)
        threading.Thread(target=_feed, args=(source, stdin), daemon=True).start()
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        words = {"arguments": arguments, "environment": dict(environment), "at": str(Path.cwd()), "folder": folder}
        server.stdin.write(json.dumps(words) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], limit)[0]:
            os.killpg(server.pid, 9)
            server.wait()
            _server.cache_clear()
            raise TimeoutError(f"milena {' '.join(arguments)}: {err.read_text()}")
        return int(server.stdout.readline()), out.read_text(), err.read_text()


def _feed(path: Path, text: str) -> None:
    """Write a command's standard input; the command need not read it."""
    with contextlib.suppress(BrokenPipeError):
        path.write_text(text)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks. It ends at the end of its standard input, so at the latest with this process."""
    command = [sys.executable, "-P", __file__]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    """Fork a child for each line of the standard input and print the child's exit code. Only the child returns."""
    with lean_import():
        for name in IMPORTED:
            import_module(name)
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            _become(**json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit()


def _become(arguments: Sequence[str], environment: Mapping[str, str], at: str, folder: str) -> None:
    """Turn this process into `python -P -m milena ARGUMENTS`."""
    for number, name in enumerate(STREAMS):
        opened = os.open(os.path.join(folder, name), os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.chdir(at)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["milena", *arguments]


if __name__ == "__main__":
    _serve()
    run_module("milena", run_name="__main__", alter_sys=True)
