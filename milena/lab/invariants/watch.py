"""Checks the invariants of a simulated cluster: after every event for the objects that it changed, at the end for all.

The brokers have no code for these checks. A partition notifies its purgatory of changes, and the watch observes these
notifications. Changes without a notification (a truncated log) are found by a later check, since after every few events
another replica is checked in turn. Images are checked when their offsets have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.broker.server import Broker
from milena.controller.server import Controller
from milena.lab.histories.events import Void
from milena.lab.invariants.deletions import TopicDeletionDuties
from milena.lab.invariants.images import ImageRules
from milena.lab.invariants.logs import LogChecks
from milena.lab.invariants.observed_broker import ObservedBroker
from milena.lab.invariants.tiers import TierRules
from milena.lab.world.disk import Storage
from milena.node.metadata.image import MetadataImage

EVENTS_FOR_A_TURN: Final = 32
"""Every so many events a partition of each broker that was not touched is checked, too."""


class Watch:
    """The checks of a cluster. Call ``after_event`` after every event; it raises InvariantBroken."""

    def __init__(self, now: Callable[[], float], tier: Storage) -> None:
        """``tier`` is the disk of the tier that all brokers share."""
        self.tier = TierRules(tier)
        self._controller: Controller | None = None
        self._known_controller: Controller | None = None
        self._image = MetadataImage()
        self._committed = 0
        """The offset of the metadata log below which records are committed."""
        self._hosts: dict[int, ObservedBroker] = {}
        self.deletions = TopicDeletionDuties(self._hosts)
        self._runs = 0
        self._events = 0
        self.on_image: Callable[[MetadataImage], object] | None = None
        """Called with the controller's image whenever it has changed."""
        self._images = ImageRules()
        self._logs = LogChecks(self._hosts, lambda: self._image, now, self.tier)

    @property
    def voids(self) -> list[Void]:
        """The promises that faults have voided; they are part of the run's history."""
        return self._logs.voids

    @property
    def shaken(self) -> list[tuple[str, int]]:
        """Partitions that may stay without a leader."""
        return self._logs.shaken

    def tell(self, note: Callable[[str], object]) -> None:
        """Call ``note`` with a text whenever promises become void from now on."""
        self._logs.note = note

    def controller_starts(self, controller: Controller) -> None:
        self._controller = controller

    def broker_starts(self, number: int, broker: Broker, storage: Storage, alive: Callable[[], bool]) -> None:
        """Observe a new process of a broker. Call this before the broker runs."""
        self._runs += 1
        self._hosts[number] = ObservedBroker(broker, storage, self._runs, alive)

    def disk_lost(self, number: int, *, wiped: bool = False) -> None:
        """Record that a broker has lost its unsynced data, or (``wiped``) all data."""
        self._logs.disk_lost(number, wiped=wiped)

    def after_event(self) -> None:
        """Check the images and partitions that have changed. Raises InvariantBroken."""
        self._check_controller()
        self._events += 1
        if self._events % EVENTS_FOR_A_TURN == 0:
            for observed in self._hosts.values():
                observed.touch_next()
        for number, observed in self._hosts.items():
            if observed.touched or observed.broker.image.offset != observed.offset:
                self._check_broker(number, observed)

    def _check_broker(self, number: int, observed: ObservedBroker) -> None:
        image, touched = observed.broker.image, observed.take_touched()
        if not observed.alive():
            return
        if image.offset != observed.offset:
            self._images.check(f"broker {number}", observed.seen, image)
            observed.offset = image.offset
        for partition in touched:
            self._logs.check(observed, partition)

    def _check_controller(self) -> None:
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
            if self.on_image is not None:
                self.on_image(image)
            self.deletions.image_moved(image)
            for change in self._images.controller_moved(image):
                self._logs.registration_changed(change)

    def _note_committed(self, controller: Controller) -> None:
        """Record the high watermark: the next controller must have the records below it, which may have been
        acknowledged."""
        self._committed = max(self._committed, controller.metadata.high_watermark)

    def check_all(self) -> None:
        """Check all logs, images and segments from the beginning. Raises InvariantBroken."""
        self.after_event()
        self.tier.forget()
        for number, observed in self._hosts.items():
            if not observed.alive():
                continue
            self._images.check_all(f"broker {number}", observed.broker.image)
            observed.forget_cursors()
            for partition in observed.broker.partitions:
                self._logs.check(observed, partition)
                replica = observed.replica(partition)
                registered = self._image.partition(partition.topic, partition.index)
                if replica is None or registered is None:
                    continue
                if replica.leads:
                    self._logs.check_isr(replica, registered)
                elif replica.broker in registered.isr:
                    self._logs.check_tier(replica, observed, partition)
