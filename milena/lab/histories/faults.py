"""The kinds of faults, and the description of an injected fault that the checker needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milena.protocol.types import TopicPartition


class Kind(Enum):
    """Kinds of faults. The values are the names on the command line and in reports."""

    KILL = "kill"
    """SIGKILL, and a new process on the same directories."""
    STOP = "stop"
    """SIGSTOP until after the broker session has expired, then SIGCONT: the node does not know that it was replaced.
    This is not ``milena lab NODE stop``, a clean shutdown as in ``RESTART``."""
    HANG = "hang"
    """SIGSTOP for less than the session timeout: to the other nodes it looks like a slow network."""
    RESTART = "restart"
    """SIGTERM (controlled shutdown), then a start."""
    ISOLATE = "isolate"
    """The broker cannot communicate with other nodes; clients can reach it."""
    CUT_CONTROLLER = "cut-controller"
    """A leader and the controller cannot communicate; the followers can reach the leader."""
    CUT_FOLLOWERS = "cut-followers"
    """A leader's followers cannot reach it; the controller can."""
    CUT_ONE_WAY = "cut-one-way"
    """Data from a broker to another node does not arrive until the link is healed; the opposite direction works."""
    WIPE = "wipe"
    """The broker is killed, its log directories are emptied, as after the replacement of a disk, and it is started."""
    POWER_LOSS = "power-loss"
    """The node ends, and all data that it has not synced is lost."""
    FULL_DISK = "full-disk"
    """Writes to a log directory fail with ENOSPC for a while; then the broker is started again."""
    LOST_DIRECTORY = "lost-directory"
    """All access to one of a broker's log directories fails with EIO for a while; then the broker is started again."""
    SLOW_DISK = "slow-disk"
    """Each sync of a broker's log directories takes longer."""
    TIER_AWAY = "tier-away"
    """Each call of the tier's store fails."""
    TIER_UNMOUNTED = "tier-unmounted"
    """The tier's folder is replaced by an empty one, as if it was unmounted."""
    ODD_TIER = "odd-tier"
    """The tier's store returns wrong results: an error page or a part of an object, or an unexpected exception."""
    SLOW_OBJECTS = "slow-objects"
    """Each call of the tier's store takes longer."""
    LOST_OBJECTS = "lost-objects"
    """Some new objects of the tier are lost after they were written. Their records are lost if the local copies have
    been deleted; the history has them as holes."""
    CONTROLLER = "controller"
    """The controller is killed and started again."""
    CLOCK = "clock"
    """A node's wall clock jumps, forwards or back."""
    ROLLING = "rolling"
    """Each node in turn, the controller last, is shut down (controlled shutdown) and started, once all are in sync."""
    REASSIGN = "reassign"
    """Replicas of a partition are reassigned to other brokers and back."""
    UNCLEAN = "unclean"
    """All replicas of a partition end except one outside of the ISR. If unclean elections are enabled, this replica is
    elected and records are lost; otherwise the partition has no leader until a member of the ISR returns."""
    BLACKOUT = "blackout"
    """All brokers lose power, and are started one after the other."""
    CONTROLLER_POWER_LOSS = "controller-power-loss"
    """The controller ends, and all data that it has not synced is lost; then it is started again."""
    DISK_ERRORS = "disk-errors"
    """One operation (or each) on one or all log directories of a broker fails; then the broker is killed and started
    again."""
    FLIPPED_BIT = "flipped-bit"
    """A node is killed, and a bit of its metadata log or of a snapshot is another one when it starts again."""
    CUT_LINK = "cut-link"
    """A broker and another node, or the clients, cannot communicate."""
    SLOW_LINK = "slow-link"
    """A link between a broker and another node, or the clients, is slow."""
    TIER_ERRORS = "tier-errors"
    """One operation (or each) on the tier's folder fails."""
    TIER_FULL = "tier-full"
    """The tier's folder is full, now or soon, or read-only."""
    MISSING_OBJECTS = "missing-objects"
    """Some objects of the tier are missing or truncated for a while."""
    LOST_OBJECT = "lost-object"
    """One object of the tier, of any type, is removed or truncated, and never returns."""


class Effect(Enum):
    """Whether the runner has observed the effect of a fault."""

    SEEN = "seen"
    NOT_SEEN = "not seen"
    HIDDEN = "hidden"
    """Another fault at the same time hides the effect."""
    OMITTED = "not carried out"
    """Nothing was done, because the fault would have had no effect. It does not count."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected fault. Times are seconds of the run's clock."""

    kind: Kind
    nodes: tuple[int, ...]
    begun: float
    mended: float
    writable: tuple[TopicPartition, ...] = ()
    """Partitions that must acknowledge writes, and serve readers, during the fault: enough of their replicas are not
    affected."""
    within: float = 0.0
    """Seconds after ``begun`` after which ``writable`` must make progress."""
    recovers: float = 0.0
    """Seconds after ``mended`` after which all partitions must acknowledge writes again."""
    groups: tuple[str, ...] = ()
    """Groups whose commits must be acknowledged during the fault."""
    text: str = ""
    """Details for reports: which links were cut, how far the clock jumped."""
    stale: bool = False
    """Whether consumers may fetch from a replaced leader that does not know that it was replaced. It answers without
    new records and without an error, so that consumers do not look for the new leader: no reads are required during the
    fault."""
    effect: Effect | None = None
    """Whether the fault's effect was observed; None if that was not checked."""
    late: tuple[TopicPartition, ...] = ()
    """Partitions that acknowledged no write within ``recovers`` seconds after ``mended``, without another fault in that
    time."""
    doomed: tuple[TopicPartition, ...] = ()
    """Partitions whose records acknowledged from ``doomed_from`` to ``doomed_until`` must be lost, as their
    configuration permits: only the former leader had these records."""
    doomed_from: float = 0.0
    doomed_until: float = 0.0

    @property
    def description(self) -> str:
        """The fault in the text of a violation."""
        return f"{self.kind.value} {' '.join(map(str, self.nodes))}".rstrip() + f" was mended at {self.mended:.3f}"
