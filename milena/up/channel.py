"""How nodes and their supervisor hear of each other: two named pipes below the cluster's directory.

``.alive``: the supervisor holds the writing end; its end of file tells a node that the supervisor is gone, even by
``kill -9``. ``.status``: nodes and commands write lines ``NODE PID EVENT``. Named pipes need no inheritance, so a node
that a person brings back with `milena node` belongs to the cluster like the others.
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
"""Not of a node: `milena down` asks the supervisor to end."""
START = "start"
"""Not of a node: somebody asks the supervisor to start it."""


class Message:
    """One line: which node, which process, what happened."""

    def __init__(self, node_id: int, pid: int, event: str) -> None:
        self.node_id = node_id
        self.pid = pid
        self.event = event


class SupervisorEnd:
    """Both pipes as the supervisor holds them."""

    def __init__(self, cluster: ClusterDir) -> None:
        for path in (cluster.alive, cluster.status):
            _make_pipe(path)
        # Opened for both directions, so that neither an open nor an end of file waits for the other side.
        self._sign_of_life = os.open(cluster.alive, os.O_RDWR | os.O_CLOEXEC)
        self.for_children = os.open(cluster.alive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.fd = os.open(cluster.status, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def read(self) -> list[Message]:
        """The messages that have come. Lines of another form are dropped: anybody can write into a named pipe."""
        try:
            data = self._rest + os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        *lines, self._rest = data.split(b"\n")
        return [message for line in lines if (message := _parse(line)) is not None]


def tell_supervisor(cluster: ClusterDir, node_id: int, event: str) -> bool:
    """Send one message. False where no supervisor runs."""
    try:
        fd = os.open(cluster.status, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody reads
            return False
        raise
    try:
        os.write(fd, f"{node_id} {os.getpid()} {event}\n".encode())
    finally:
        os.close(fd)
    return True


def watch_supervisor(cluster: ClusterDir) -> int:
    """A descriptor that reaches its end of file when the supervisor is gone. Call it while one runs."""
    return os.open(cluster.alive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _make_pipe(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        os.mkfifo(path, 0o600)
    except OSError as error:
        raise UserError(f"cannot make the named pipe {path}: {error.strerror}") from None


def _parse(line: bytes) -> Message | None:
    words = line.decode(errors="replace").split()
    if len(words) != 3 or not words[0].isdecimal() or not words[1].isdecimal():
        return None
    return Message(int(words[0]), int(words[1]), words[2])
