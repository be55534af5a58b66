"""The kinds of faults, by name, and what one that was injected has to be judged by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milena.protocol.types import TopicPartition


class Kind(Enum):
    """The value is the name on the command line and in reports."""

    KILL = "kill"
    """SIGKILL, and a new process on the same directories."""
    STOP = "stop"
    """SIGSTOP until after the session's end, then SIGCONT: the node wakes up and believes that it leads."""
    HANG = "hang"
    """SIGSTOP for less than the session: to the others a network that hangs."""
    RESTART = "restart"
    """SIGTERM, the controlled shutdown, and a start."""
    ISOLATE = "isolate"
    """No node reaches the broker, nor it them; clients do."""
    CUT_CONTROLLER = "cut-controller"
    """A leader and the controller do not reach each other; its followers reach it."""
    CUT_FOLLOWERS = "cut-followers"
    """A leader's followers do not reach it; the controller does."""
    CUT_ONE_WAY = "cut-one-way"
    """What a broker sends to another node is lost, in one direction alone."""
    WIPE = "wipe"
    """Killed, its log directories emptied as by a replaced disk, and started."""
    POWER_LOSS = "power-loss"
    """What the node has not synced is lost."""
    FULL_DISK = "full-disk"
    """Writes to a log directory fail with ENOSPC for a while; then the broker is started again."""
    LOST_DIRECTORY = "lost-directory"
    """All access to one of a broker's log directories fails with EIO for a while; then the broker is started again."""
    SLOW_DISK = "slow-disk"
    TIER_AWAY = "tier-away"
    """Each call of the tier fails."""
    TIER_UNMOUNTED = "tier-unmounted"
    """Brokers find an empty folder in place of the tier's folder."""
    ODD_TIER = "odd-tier"
    """The tier's store gives wrong answers: an error page in place of an object, a part of it, errors of a library."""
    SLOW_OBJECTS = "slow-objects"
    LOST_OBJECTS = "lost-objects"
    """Some new objects of the tier are lost right after they were written, as by a store that forgets. Their records
    are lost if the local copies are gone: told as holes."""
    CONTROLLER = "controller"
    """The controller is killed, and comes back."""
    CLOCK = "clock"
    """A node's wall clock jumps, forwards or back."""
    ROLLING = "rolling"
    """Each node in turn, controller last, is shut down in order and started, each as soon as all are in sync."""
    REASSIGN = "reassign"
    """Replicas of a partition move to other brokers and back while all else goes on."""
    UNCLEAN = "unclean"
    """All in-sync replicas of a partition but a stale one end. Where unclean election is permitted the stale one leads,
    and records are lost; elsewhere the partition has no leader until one of the ISR is back."""


class Effect(Enum):
    SEEN = "seen"
    NOT_SEEN = "not seen"
    HIDDEN = "hidden"
    """By another fault at the same time."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that was injected. Times are seconds of the run's clock."""

    kind: Kind
    nodes: tuple[int, ...]
    begun: float
    mended: float
    writable: tuple[TopicPartition, ...] = ()
    """These must take acknowledged writes, and give them to readers, while it lasts: enough of their replicas are not
    affected."""
    within: float = 0.0
    """Seconds after ``begun`` from which on ``writable`` must be."""
    recovers: float = 0.0
    """Seconds after ``mended`` by which all partitions must take writes again."""
    groups: tuple[str, ...] = ()
    """These must get commits through while it lasts."""
    text: str = ""
    """Details for people: what was cut, how far the clock jumped."""
    stale: bool = False
    """Consumers reach a leader that was replaced and does not know it. It answers them with nothing new, and no error
    makes them ask for another: partitions need not be read while it lasts."""
    effect: Effect | None = None
    """What was seen of it while it lasted; None if nobody looked."""
    late: tuple[TopicPartition, ...] = ()
    """These took no write within ``recovers`` seconds after ``mended``, although no other fault began meanwhile."""
    doomed: tuple[TopicPartition, ...] = ()
    """What these acknowledged from ``doomed_from`` to ``doomed_until`` is lost, as their settings permit: their leader
    had it alone, and another one, without it, took its place."""
    doomed_from: float = 0.0
    doomed_until: float = 0.0

    @property
    def told(self) -> str:
        """For people."""
        return f"{self.kind.value} {' '.join(map(str, self.nodes))}".rstrip() + f" was mended at {self.mended:.3f}"
