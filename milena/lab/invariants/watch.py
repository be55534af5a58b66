"""Checks a simulated cluster after every event for what the event touched, and everything at the end.

The product does not know of it. A partition announces changes to its waiters by ``changed`` and ``watermark_moved``;
the watch hooks into these calls. Changes without such a call (a truncated log) are found by one of the next checks,
since one replica in turn is checked after every few events. Images are checked when their offsets have changed.
"""

from __future__ import annotations

from collections.abc import Callable

from milena.broker.server import Broker
from milena.controller.server import Controller
from milena.lab.histories.events import Void
from milena.lab.invariants.deletions import TopicDeletionDuties
from milena.lab.invariants.hosted import Hosted
from milena.lab.invariants.images import ImageRules
from milena.lab.invariants.logs import LogWatch
from milena.lab.invariants.tiers import TierRules
from milena.lab.world.disk import Storage
from milena.node.metadata.image import MetadataImage


class Watch:
    """Call ``after_event`` after every event; it raises InvariantBroken."""

    def __init__(self, now: Callable[[], float], tier: Storage) -> None:
        """``tier`` is the disk of the tier that all brokers share."""
        self.tier = TierRules(tier)
        self._controller: Controller | None = None
        self._known_controller: Controller | None = None
        self._image = MetadataImage()
        self._committed = 0
        """The first offset of the metadata log that may be lost."""
        self._hosts: dict[int, Hosted] = {}
        self.deletions = TopicDeletionDuties(self._hosts)
        self._runs = 0
        self._images = ImageRules()
        self._logs = LogWatch(self._hosts, lambda: self._image, now, self.tier)

    @property
    def voids(self) -> list[Void]:
        """The promises that faults have ended: part of the run's history."""
        return self._logs.voids

    @property
    def shaken(self) -> list[tuple[str, int]]:
        """Partitions that may stay without a leader."""
        return self._logs.shaken

    def tell(self, note: Callable[[str], object]) -> None:
        """``note`` is called for promises that end from now on."""
        self._logs.note = note

    def controller_starts(self, controller: Controller) -> None:
        self._controller = controller

    def broker_starts(self, number: int, broker: Broker, storage: Storage, alive: Callable[[], bool]) -> None:
        """Call it before the broker has done anything."""
        self._runs += 1
        self._hosts[number] = Hosted(broker, storage, self._runs, alive)

    def disk_lost(self, number: int, *, wiped: bool = False) -> None:
        """A broker has lost its unsynced data, or everything."""
        self._logs.disk_lost(number, wiped=wiped)

    def after_event(self) -> None:
        self._look_at_controller()
        for number, hosted in self._hosts.items():
            image, touched = hosted.broker.image, hosted.take_touched()
            moved = image.offset != hosted.offset
            if not (moved or touched) or not hosted.alive():
                continue
            if moved:
                self._images.check(f"broker {number}", hosted.seen, image)
                hosted.offset = image.offset
            for partition in touched:
                self._logs.look(hosted, partition)

    def _look_at_controller(self) -> None:
        controller = self._controller
        if controller is None or not controller.ready:
            return
        if controller is not self._known_controller:
            self._known_controller = controller
            began = controller.metadata.log.epochs.latest_entry
            assert began is not None
            self._images.controller_restarted(began.start, self._committed, controller.state.image)
            self._note_committed(controller)
            controller.metadata.on_commit(lambda: self._note_committed(controller))
        image = controller.state.image
        if image.offset != self._images.offset:
            self._image = image
            self.deletions.image_moved(image)
            for change in self._images.controller_moved(image):
                self._logs.registration_changed(change)

    def _note_committed(self, controller: Controller) -> None:
        """What was committed may have been answered: the next controller has it."""
        self._committed = max(self._committed, controller.metadata.high_watermark)

    def check_all(self) -> None:
        """Check everything from its start. Raises InvariantBroken."""
        self.after_event()
        self.tier.forget()
        for number, hosted in self._hosts.items():
            if not hosted.alive():
                continue
            self._images.check_all(f"broker {number}", hosted.broker.image)
            hosted.forget_cursors()
            for partition in hosted.broker.partitions:
                self._logs.look(hosted, partition)
                replica = hosted.replica(partition)
                registered = self._image.partition(partition.topic, partition.index)
                if replica is None or registered is None:
                    continue
                if replica.leads:
                    self._logs.check_isr(replica, registered)
                elif replica.broker in registered.isr:
                    self._logs.check_tier(replica, hosted, partition)
