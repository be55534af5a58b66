"""A bit of a node's metadata log or snapshot turns over while the node is down.

A controller starts with everything that was committed, or it refuses to and names the command that mends its log. The
operator then gives that command the copies of all brokers, or has the bit turned back. A broker fetches again what it
cannot use. Nothing is lost in any of these cases: no promise ends.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Awaitable, Callable
from typing import Final

from milena.controller.log.log_repair import RepairRefused, repair
from milena.lab.cluster import CONTROLLER, NodeEnded, SimulatedCluster, host_of
from milena.lab.invariants.broken import demand
from milena.lab.world.disk import Storage
from milena.lab.world.power import Inode
from milena.node.metadata.snapshots import SUFFIX, parse_file_name
from milena.protocol.records.batch import HEADER_SIZE, BatchView, CorruptBatch, iter_batches
from milena.protocol.types import METADATA_TOPIC
from milena.runtime.randomness import Randomness
from milena.storage.files.names import LOG, META_PROPERTIES

FOLDER: Final = f"{METADATA_TOPIC}-0"
COPIES: Final = "/copies"
"""Where the operator puts brokers' copies on the controller's machine."""
THE_COMMAND: Final = "milena metadata repair"
IN_NO_COPY: Final = "are in no copy"


class FlippedBytes:
    """``of_brokers`` is the log directory with the brokers' metadata, ``of_controller`` the controller's."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        note: Callable[[str], object],
        random: Randomness,
        *,
        of_brokers: str,
        of_controller: str,
    ) -> None:
        self._cluster = cluster
        self._note = note
        self._random = random
        self._of_brokers = of_brokers
        self._of_controller = of_controller

    def flip_in_broker(self, broker: int) -> None:
        """The broker is down."""
        self._flip(host_of(broker), self._of_brokers)

    def flip_in_controller(self) -> Callable[[], Awaitable[bool]]:
        """The controller is down. Return a function that starts it, and returns whether it has started; if not, it can
        be started now. The function raises InvariantBroken if the controller does not say what to do."""
        turn_back = self._flip(CONTROLLER, self._of_controller)
        return lambda: self._start_controller(turn_back)

    async def _start_controller(self, turn_back: Callable[[], None]) -> bool:
        try:
            await self._cluster.start_controller()
        except NodeEnded as error:
            self._note(str(error))
            demand(THE_COMMAND in str(error), CONTROLLER, f"it refuses its damaged log without a way out: {error}")
        else:
            self._note("the controller serves, in spite of the damage")
            return True
        self._cluster.world.machine(CONTROLLER).failures.pop()
        if not (self._random.below(3) and self._repair()):
            turn_back()
        return False

    def _flip(self, host: str, directory: str) -> Callable[[], None]:
        """Returns what turns the bit back."""
        storage = self._cluster.world.machine(host).storage
        path, position = self._choose(storage, f"{directory}/{FOLDER}")
        inode, bit = storage.files[path], 1 << self._random.below(8)
        self._note(f"a bit of {path} of {host} turns over at byte {position}: {bit}")
        inode.data[position] ^= bit

        def turn_back() -> None:
            self._note("the bit turns back")
            inode.data[position] ^= bit

        return turn_back

    def _choose(self, storage: Storage, folder: str) -> tuple[str, int]:
        """A position in a snapshot, or in the log before or behind the latest one's end."""
        paths = sorted(path for path in storage.files if posixpath.dirname(path) == folder)
        snapshots = [path for path in paths if path.endswith(SUFFIX) and parse_file_name(posixpath.basename(path))]
        latest = parse_file_name(posixpath.basename(snapshots[-1])) if snapshots else None
        end = 0 if latest is None else latest.end_offset
        batches = [
            (path, position, batch)
            for path in paths
            if path.endswith(LOG)
            for position, batch in _batches(storage.files[path])
        ]
        if snapshots and (not batches or not self._random.below(4)):
            path = self._random.choice(snapshots)
            return path, self._random.below(len(storage.files[path].data))
        covered = bool(self._random.below(2))
        wanted = [found for found in batches if (found[2].base_offset < end) == covered] or batches
        path, position, batch = self._random.choice(wanted)
        return path, position + self._random.below(self._random.choice((HEADER_SIZE, batch.size_in_bytes)))

    def _repair(self) -> bool:
        """Whether the command found all that is missing in the brokers' copies."""
        machine = self._cluster.world.machine(CONTROLLER)
        copies = [self._copy(broker, machine.storage) for broker in self._random.shuffled(list(self._cluster.brokers))]
        disk = machine.start().disk  # of the process that is the command
        try:
            repair(disk, f"{self._of_controller}/{FOLDER}", copies, cut=False, say=self._note)
        except RepairRefused as refused:
            self._note(str(refused))
            demand(IN_NO_COPY in str(refused), CONTROLLER, f"its log is not mended: {refused}")
            return False
        finally:
            disk.remove_tree(COPIES)
            machine.kill()
        return True

    def _copy(self, broker: int, target: Storage) -> str:
        """Copy a broker's metadata log as it is now; returns the folder of the copy."""
        copy = f"{COPIES}/{host_of(broker)}"
        target.folders.update({COPIES: None, copy: None, f"{copy}/{FOLDER}": None})
        for path, inode in self._cluster.world.machine(host_of(broker)).storage.files.items():
            name = path.removeprefix(f"{self._of_brokers}/")
            if path == f"{self._of_brokers}/{META_PROPERTIES}" or posixpath.dirname(name) == FOLDER:
                copied = target.files[f"{copy}/{name}"] = Inode(inode.modified_ms)
                copied.data += inode.data
        return f"{copy}/{FOLDER}"


def _batches(inode: Inode) -> list[tuple[int, BatchView]]:
    """The batches of a log with their positions, up to the first damage."""
    found: list[tuple[int, BatchView]] = []
    position = 0
    with contextlib.suppress(CorruptBatch):
        for batch in iter_batches(memoryview(bytes(inode.data))):
            found.append((position, batch))
            position += batch.size_in_bytes
    return found
