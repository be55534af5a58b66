"""The interface of a place where a run happens: the simulation, processes, containers or a Kafka cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Kind, Step
from milena.lab.chaos.holes import Hole
from milena.lab.histories.events import Event
from milena.protocol.types import TopicPartition
from milena.runtime.context import Runtime

if TYPE_CHECKING:
    from milena.lab.chaos.observer import Observer
    from milena.lab.invariants.tiers import Freed


class Insight(Protocol):
    """What only the simulation can tell and do: it sees the state of all nodes, and checks invariants after every
    event."""

    @property
    def freed(self) -> Freed:
        """Gets what administrators ask to delete."""
        ...

    @property
    def shaken(self) -> Collection[TopicPartition]:
        """Partitions that may stay without a leader, so that an unclean election is requested."""
        ...

    def excuses(self, partition: TopicPartition, broker: int) -> bool:
        """Return whether a replica may stay out of the ISR, because it needs lost objects of the tier."""
        ...

    def hole_at(self, partition: TopicPartition, offset: int) -> Hole | None:
        """Return the offsets from ``offset`` on whose only objects are lost; None if the record is there."""
        ...

    def observe(self, observer: Observer) -> None:
        """Report each image of the controller to an observer from now on."""
        ...

    async def disturb(self, step: Step) -> Callable[[], Awaitable[None]]:
        """Inject a fault of ``Act.DISTURB``. Return what mends it."""
        ...

    async def copied(self, seconds: float) -> None:
        """Return when leaders have copied all closed segments, and the tier has nothing of deleted topics. Raise
        NotHealthy."""
        ...

    def check(self) -> Sequence[Event]:
        """Check all invariants. Return the promises that faults have voided. Raise InvariantBroken, or AssertionError
        if a node has ended by itself, except because of its disks."""
        ...


class Place(Protocol):
    """A running cluster. Nodes are named by their ids. Methods return when the operation is done, and raise UserError
    with a reason if it cannot be done.

    A fault lasts until it is mended. ``heal_links`` and ``start`` may be called for a node without a fault."""

    name: str
    """As on the command line: ``simulation``, ``processes``, ``containers``, ``kafka``."""

    @property
    def runtime(self) -> Runtime:
        """The clock, the randomness and the tasks of the run itself."""
        ...

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        """The brokers' addresses as ``runtime`` reaches them."""
        ...

    async def address(self, node: int) -> tuple[str, int] | None:
        """Return where ``runtime`` reaches a node now; None if it cannot be reached."""
        ...

    async def troubles(self, node: int) -> Mapping[str, float]:
        """Return what the node reports of its faults; empty if it is down, paused, or does not answer.
        ``wall_ms``: its wall clock. Counts since its start: ``slowed`` (calls of its slow disk), ``tier_failed``,
        ``tier_odd`` (if wrong answers are counted), ``tier_slowed`` and ``tier_lost``."""
        ...

    @property
    def brokers(self) -> Sequence[int]: ...

    @property
    def controller(self) -> int: ...

    @property
    def kinds(self) -> frozenset[Kind]:
        """The faults that this place can inject."""
        ...

    @property
    def clients(self) -> Sequence[Clients]:
        """The client libraries that work here; each kind of work goes to all that can do it."""
        ...

    @property
    def topics(self) -> frozenset[str]:
        """The kinds of topics that this place can have: names of ``chaos.topics.TOPICS``."""
        ...

    @property
    def odd_answers(self) -> Sequence[str]:
        """The wrong answers that the tier's store can give (``Kind.ODD_TIER``)."""
        ...

    @property
    def session(self) -> float:
        """``broker.session.timeout.ms``, in seconds."""
        ...

    @property
    def lag(self) -> float:
        """``replica.lag.time.max.ms``, in seconds."""
        ...

    @property
    def insight(self) -> Insight | None:
        """None except in the simulation. With it faults may overlap, and lose records."""
        ...

    # -- processes

    async def kill(self, node: int) -> None: ...

    async def shut_down(self, node: int) -> None:
        """In order, by SIGTERM. Returns when the process has ended."""
        ...

    async def start(self, node: int) -> None:
        """Returns when the node serves."""
        ...

    async def pause(self, node: int) -> None: ...

    async def resume(self, node: int) -> None: ...

    async def power_off(self, node: int) -> None: ...

    async def wipe(self, node: int) -> None:
        """The node is down."""
        ...

    # -- links

    async def cut(self, sender: int, receiver: int) -> None:
        """Nothing that ``sender`` sends reaches ``receiver``: one way. Clients are not affected."""
        ...

    async def heal_links(self) -> None:
        """Heal all links."""
        ...

    # -- disks and clocks

    async def fill_disk(self, node: int) -> None:
        """Writes to one of its log directories fail with ENOSPC until it is started again."""
        ...

    async def fail_directory(self, node: int) -> None:
        """All access to one of its log directories fails with EIO until it is started again."""
        ...

    async def slow_disk(self, node: int, seconds: float) -> None:
        """Add ``seconds`` to each sync; 0 ends it."""
        ...

    async def jump_clock(self, node: int, seconds: float) -> None:
        """Set the wall clock ``seconds`` ahead (negative: back); the monotonic clock stays. 0 resets it."""
        ...

    # -- the tier, of all brokers

    async def break_tier(self, *, away: bool = False, delay: float = 0.0, lose: float = 0.0, odd: str = "") -> None:
        """``away``: each call fails. ``delay``: seconds added to each call. ``lose``: the share of new segments whose
        objects vanish after they were written. ``odd``: one of ``odd_answers``. Without arguments: the tier is whole
        again (what was lost stays so)."""
        ...

    async def mount_tier(self, brokers: Collection[int] = (), *, mounted: bool) -> bool:
        """Replace the tier's folder by an empty one, or put it back, for these brokers (none: for all). Return False
        if nothing was done since the tier is not used yet: brokers cannot notice that such a tier is missing. Raise
        AssertionError if something was written to the empty folder."""
        ...

    async def lost_objects(self) -> Sequence[str]:
        """The paths of the objects that ``break_tier`` has lost so far."""
        ...

    # -- the end

    async def keep(self, folder: Path) -> None:
        """Write the nodes' logs, and what else explains a failure, to a folder."""
        ...

    async def close(self) -> None:
        """End everything that this place has started."""
        ...
