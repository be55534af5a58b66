"""A pass of cleaning by a work order: the leader writes the order; later it checks what somebody has made of it, and
publishes that as a pass of its own (docs/decisions/2026-11-23-work-orders.md).

Nothing is published before all was found right. Each group is then fetched once more, and is what it was.
"""

from __future__ import annotations

from typing import Final

from milena.protocol.records.crc import crc32c
from milena.protocol.records.record_cursor import DEFAULT_LIMIT
from milena.protocol.types import Offset, ProducerId
from milena.runtime.disk import Steps
from milena.storage.cleaning.retained import LastRecord
from milena.storage.files.names import LOG
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.cleaning.files import MADE, WINNERS
from milena.tiered.cleaning.grouping import groups
from milena.tiered.cleaning.window import Window, map_of_pass
from milena.tiered.orders.checking import (
    KEYS,
    Agree,
    CheckGroup,
    CheckKeys,
    CheckStep,
    Index,
    Indexed,
    ResultRefused,
    Right,
    check_result,
)
from milena.tiered.orders.keys import SECRET_BYTES
from milena.tiered.orders.manifest import MadeGroup, Manifest, StagedObject, decode_manifest, most_bytes
from milena.tiered.orders.order import MANIFEST, ORDER, PRODUCERS, Issued, Order, OrderedGroup, encode_order
from milena.tiered.orders.texts import BadText
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import RemoteResourceNotFound, RemoteStorageError
from milena.tiered.store.staging import PIECE, Staging, work_folder
from milena.tiered.work.cleaning_pass import CleaningPass, Done, Means, PassEnded
from milena.tiered.work.roles import ReplicaRole

TIMEOUT: Final = "remote.log.compaction.work.orders.timeout.ms"


class OrderedPass(CleaningPass):
    """``issue``, or ``run`` of one that was issued before, which raises ResultRefused, too."""

    def __init__(
        self,
        tier: Tier,
        role: ReplicaRole,
        log: UnifiedLog,
        window: Window,
        means: Means,
        order: Order | None = None,
    ) -> None:
        super().__init__(tier, role, log, window, means)
        self._order = order

    def check(self) -> None:
        super().check()
        order = self._order
        if order is not None and self._tier.runtime.clock.time_ms() >= order.expires_at:
            raise ResultRefused("its time is over")

    @property
    def _staging(self) -> Staging:
        staging = self._tier.staging
        assert staging is not None
        return staging

    # -- the order

    async def issue(self, timeout_ms: int) -> Issued | None:
        """Write the order; former ones of the partition are removed. None if all dirty records are of transactions
        whose end is not in the tier."""
        self.check()
        await self._bounded()
        window = self._window
        if window.end <= window.first_dirty:
            return None
        producers = await self._producers(window.sources[-1])
        self.check()
        order = self._ordered(window, timeout_ms)
        folder = work_folder(order.partition)
        for name in await self._staging.names(folder):
            self.check()
            try:
                await self._staging.remove(f"{folder}/{name}")
            except RemoteStorageError as error:
                self._tier.report("former work order not removed", self._role.replica, error)
        self.check()
        await self._staging.write(order.path(PRODUCERS), producers)
        self.check()
        text = await self._disk.offload(encode_order, order)  # of many segments it takes a second
        self.check()
        await self._staging.write(order.path(ORDER), text)
        self.check()
        return Issued(order, window)

    def _ordered(self, window: Window, timeout_ms: int) -> Order:
        config, now, random = self.log.config, self._tier.runtime.clock.time_ms(), self._tier.runtime.random
        local = self.log.local_log_start_offset
        remote = [one for one in window.sources if one.last < local]
        every = [
            *(OrderedGroup(tuple(one), now) for one in groups(remote, config, end=window.end)),
            *(OrderedGroup(tuple(one), None) for one in groups(window.sources[len(remote) :], config, end=window.end)),
        ]
        return Order(
            random.uuid(),
            self._role.partition,
            self._by,
            self._cache.claimed,
            map_of_pass(self._cache, self._by, window.end, leader_epochs=self.log.epochs.entries),
            now,
            now + timeout_ms,
            window.first_dirty,
            config.delete_retention_ms + timeout_ms,
            config.segment_bytes,
            config.index_interval_bytes,
            DEFAULT_LIMIT,
            random.bytes(SECRET_BYTES),
            tuple(every),
        )

    # -- what was made of it

    async def _run(self) -> Done | None:
        order = self._order
        assert order is not None
        manifest = await self._manifest(order)
        producers = await self._bounded()
        self._still_stand(order)
        await self._fetch_aborted()
        steps = self._begin(order, producers)
        await steps.next()
        for group, made in zip(order.groups, manifest.groups, strict=True):
            await self._compare(steps, order, group, made)
        for one in manifest.keys:
            await self._take(order, one, f"{self._folder.path}/{KEYS}")
            self._noted(await steps.next(CheckKeys()))
            await self._disk.offload(self._disk.remove, f"{self._folder.path}/{KEYS}")
        self._noted(await steps.next(Agree()))
        self._still_stand(order)
        for group, made in zip(order.groups, manifest.groups, strict=True):
            if made.log is not None:
                await self._publish(steps, order, group, made.log)
        self.check()
        await self._finish(order.end)
        return Done(order.end, self._replaced, self._figures)

    def _still_stand(self, order: Order) -> None:
        self.check()
        if self._window.end != order.end:
            raise PassEnded(f"the tier has not all of the transactions before offset {order.end} any more")
        if self._cache.copied_again != self._window.copied_again:
            raise PassEnded("segments were copied again meanwhile, with records that had been cleaned away")
        if map_of_pass(self._cache, self._by, order.end, leader_epochs=self.log.epochs.entries) != order.map:
            raise PassEnded("the partition was cleaned otherwise meanwhile")
        for group in order.groups:
            if not self._still_serve(group.sources):
                raise PassEnded(f"the segments from offset {group.first} on have changed")

    async def _manifest(self, order: Order) -> Manifest:
        path, most = order.path(MANIFEST), most_bytes(order)
        try:
            size = await self._staging.size(path)
            self.check()
            if size > most:
                raise ResultRefused(f"its manifest has {size} bytes, {most} are allowed")
            data = await self._staging.read(path, 0, size)
        except RemoteResourceNotFound:
            raise ResultRefused("its manifest has gone") from None
        self.check()
        try:
            return await self._disk.offload(decode_manifest, data, order)
        except BadText as error:
            raise ResultRefused(str(error)) from None

    def _begin(self, order: Order, producers: dict[ProducerId, LastRecord]) -> Steps[CheckStep]:
        work = self._work(producers)._replace(
            delete_retention_ms=order.delete_retention_ms, index_interval=order.index_interval, limit=order.limit
        )
        own = self._tier.runtime.random.bytes(SECRET_BYTES)  # nobody knew it when the result was made
        return self._means.worker.run(check_result, self._paced, work, order.secret, own)

    async def _compare(self, steps: Steps[CheckStep], order: Order, group: OrderedGroup, made: MadeGroup) -> None:
        self._check_group(group.sources)
        files = tuple([await self._fetch(source) for source in group.sources])
        await self._take(order, made.winners, self._folder.file(group.first, WINNERS))
        if made.log is not None:
            await self._take(order, made.log, self._folder.file(group.first, LOG + MADE))
        size = None if made.log is None else made.log.size
        self._noted(await steps.next(CheckGroup(files, Offset(group.last + 1), group.deletes_at, size)))
        await self._disk.offload(self._folder.remove_group, [source.first for source in group.sources])
        self.check()

    def _noted(self, step: CheckStep | None) -> None:
        assert isinstance(step, Right)
        self._figures = step.figures
        self.check()

    async def _publish(self, steps: Steps[CheckStep], order: Order, group: OrderedGroup, log: StagedObject) -> None:
        self._check_group(group.sources)
        if group.last < self.log.log_start_offset:
            return  # deleted meanwhile
        await self._take(order, log, self._folder.file(group.first, LOG + MADE))
        self._check_group(group.sources)
        files = await steps.next(Index(group.first, Offset(group.last + 1), log.size))
        assert isinstance(files, Indexed)
        self.check()
        await self._replace(group.sources, files.segment, order.map)
        await self._disk.offload(self._folder.remove_group, [source.first for source in group.sources])
        self.check()

    async def _take(self, order: Order, staged: StagedObject, path: str) -> None:
        """Bring an object to this disk, if it is what the manifest says."""
        source, crc, position = order.path(staged.name), 0, 0
        try:
            size = await self._staging.size(source)
            self.check()
            if size != staged.size:
                raise ResultRefused(f"{staged.name} has {size} bytes, the manifest says {staged.size}")
            file = await self._disk.offload(self._disk.open, path, create=True)
            try:
                while position < size:
                    data = await self._staging.read(source, position, min(PIECE, size - position))
                    crc = crc32c(data, crc)
                    await self._disk.offload(file.append, [data])
                    position += len(data)
                    await self._fetched(len(data))
            finally:
                file.close()
        except RemoteResourceNotFound:
            raise ResultRefused(f"{staged.name} is missing") from None
        if crc != staged.crc:
            raise ResultRefused(f"{staged.name} has another checksum than the manifest says")
        self.check()
