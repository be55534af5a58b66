"""The process of the HTTP server of `milena up --http`, and the command `milena console`.

Imported with --http alone: a start without it does not wait for this.
"""

from __future__ import annotations

import os
import sys
import time

from milena import install_hint
from milena.command_line.errors import UserError
from milena.command_line.options import CommandLine, Option
from milena.up import http_files, processes
from milena.up.layout import DEFAULT_DIR, ClusterDir
from milena.up.processes import PARENT_FD, NodeProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "http"
"""The name of its log."""
SOON = 5.0
"""Seconds: a server that ends so soon after its start is not started again."""
STOP_LIMIT = 5.0
"""Seconds that the server may take to stop before it is killed."""

CONSOLE = CommandLine(
    "console",
    "Print a link to the console of a running `milena up --console`. It works once, within ten minutes, and signs the\n"
    "browser in.",
    [Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)],
)


def check_extra(option: str) -> None:
    """Raise UserError, which names the extra, if the server's packages are not installed."""
    from importlib.util import find_spec

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UserError(f"{option} needs the extra console: pip install {install_hint('console')}")


class HttpServer:
    """The server of one cluster."""

    def __init__(self, cluster: ClusterDir, port: int, host: str, allowed_hosts: list[str], *, page: bool) -> None:
        self._cluster = cluster
        self._options = ["--dir", cluster.path, "--port", str(port), "--host", host]
        self._options += [word for name in allowed_hosts for word in ("--allowed-host", name)]
        self._options += ["--console"] if page else []
        self.page = page
        self.process: NodeProcess | None = None
        self.ready = False
        self._started = 0.0

    def start(self, alive: int) -> None:
        """Start the process. ``alive``: the descriptor that reaches end of file when the supervisor ends. Raises
        UserError for a token file that others may read, OSError."""
        http_files.token(self._cluster.http_token)
        http_files.forget(self._cluster)
        self.process = processes.spawn(
            ["http", *self._options], self._cluster.log(NAME), {**os.environ, PARENT_FD: str(alive)}, alive
        )
        self._started = time.monotonic()

    def take_exit(self) -> tuple[str, bool] | None:
        """Return why the process has ended, and whether it ended soon after its start; None while it runs."""
        if self.process is None:
            return None
        reason = self.process.exit_reason()
        if reason is None:
            return None
        words = processes.last_words(self._cluster.log(NAME), self.process.log_start)
        soon = time.monotonic() - self._started < SOON
        self.process, self.ready = None, False
        return f"the HTTP server {reason}{f': {words}' if words else ''}", soon

    def lines(self, *, secret: bool) -> list[str]:
        """Return what a user should know when it is ready. ``secret``: with a link to the console, whose code must not
        be printed into a log."""
        address = http_files.address(self._cluster) or ""
        shown = [f"HTTP API at {address}, the token is in {self._cluster.http_token}"]
        if self.page:
            link = http_files.link(self._cluster, address) if secret else "`milena console` prints a link"
            shown.append(f"console: {link}")
        return shown

    def stop(self) -> None:
        """End the process, and remove its files."""
        from signal import SIGKILL, SIGTERM

        if self.process is not None:
            self.process.signal(SIGTERM)
            deadline = time.monotonic() + STOP_LIMIT
            while self.process.exit_reason() is None:
                if time.monotonic() > deadline:
                    self.process.signal(SIGKILL)
                time.sleep(0.01)
            self.process = None
        http_files.forget(self._cluster)


def console(arguments: Sequence[str]) -> int:
    """`milena console`."""
    values = CONSOLE.parse(arguments)
    if values.help:
        print(CONSOLE.help())
        return 0
    cluster = ClusterDir(values.dir)
    address = http_files.address(cluster)
    if address is None:
        print(f"milena: no HTTP server runs in {cluster.path}; `milena up --console` starts one", file=sys.stderr)
        return UserError.exit_code
    print(http_files.link(cluster, address))
    return 0
