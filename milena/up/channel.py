"""The communication between nodes and their supervisor: two named pipes in the cluster's directory.

``.alive``: the supervisor holds the writing end; its end of file means that the supervisor has ended, even by
``kill -9``. ``.status``: nodes and commands write lines ``NODE PID EVENT``. Named pipes need no inheritance, so a node
that a user starts with `milena node` belongs to the cluster like the others.
"""

from __future__ import annotations

import contextlib
import errno
import os

from milena.command_line.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.up.layout import ClusterDir

STARTING = "starting"
READY = "ready"
STOP = "stop"
"""Sent by `milena down`: the supervisor shall stop."""
START = "start"
"""Sent by `milena lab NODE start`: the supervisor shall start the node."""


HTTP_READY = "http-ready"
"""Sent by the HTTP server: it listens."""


class Message:
    """One line: node, process and event."""

    def __init__(self, node_id: int, pid: int, event: str) -> None:
        self.node_id = node_id
        self.pid = pid
        self.event = event


class SupervisorEnd:
    """The supervisor's ends of both pipes."""

    def __init__(self, cluster: ClusterDir) -> None:
        for path in (cluster.alive, cluster.status):
            _make_pipe(path)
        # Opened for reading and writing, so that open does not block and no end of file is seen.
        self._sign_of_life = os.open(cluster.alive, os.O_RDWR | os.O_CLOEXEC)
        self.for_children = os.open(cluster.alive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.fd = os.open(cluster.status, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def read(self) -> list[Message]:
        """Return the messages that have arrived. Malformed lines are dropped: any process may write into the pipe."""
        try:
            data = self._rest + os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        *lines, self._rest = data.split(b"\n")
        return [message for line in lines if (message := _parse(line)) is not None]


def notify_supervisor(cluster: ClusterDir, node_id: int, event: str) -> bool:
    """Send one message. Return False if no supervisor runs."""
    try:
        fd = os.open(cluster.status, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ENXIO:  # no process reads the pipe
            return False
        raise
    try:
        os.write(fd, f"{node_id} {os.getpid()} {event}\n".encode())
    finally:
        os.close(fd)
    return True


def watch_supervisor(cluster: ClusterDir) -> int:
    """Return a descriptor that reaches end of file when the supervisor ends. Call it while one runs."""
    return os.open(cluster.alive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _make_pipe(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        os.mkfifo(path, 0o600)
    except OSError as error:
        raise UserError(f"cannot create the named pipe {path}: {error.strerror}") from None


def _parse(line: bytes) -> Message | None:
    words = line.decode(errors="replace").split()
    if len(words) != 3 or not words[0].isdecimal() or not words[1].isdecimal():
        return None
    return Message(int(words[0]), int(words[1]), words[2])
