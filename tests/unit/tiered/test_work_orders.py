"""A leader lets somebody else clean its partition, and publishes what comes of it if that is right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from milena.protocol.records.batch import BatchView, Codec
from milena.protocol.types import LeaderEpoch
from milena.tiered.orders.carrying_out import CannotBeCarriedOut
from milena.tiered.orders.order import MANIFEST, decode_order, encode_order
from milena.tiered.store.remote_storage import IndexType
from milena.tiered.work.ordered_pass import TIMEOUT
from milena.tiered.work.work_orders import ENABLE
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.cleaned_tier import HOUR_MS, CleanedTier, keyed, on_tier
from tests.unit.tiered.forged_results import Forged, rewritten
from tests.unit.tiered.ordered_tier import TIMEOUT_S, OrderedTier, on_ordered_tier


async def filled(tier: CleanedTier) -> None:
    tier.segment(*keyed(("a", "1"), ("b", "1")))
    tier.segment(*keyed(("a", "2"), ("c", "1")))
    tier.segment(*keyed(("c", "2"), ("d", "1")))
    await tier.copy()


def test_what_somebody_else_has_cleaned_is_published_as_a_pass_of_the_leader() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        before = {one.id for one in tier.served()}
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to()) == ([0, 1, 2, 3, 4, 5], None), "nothing is cleaned here"
        await tier.clean()
        assert await tier.worker.carry_out_all() == 1
        await tier.clean()
        assert await tier.offsets() == [1, 2, 4, 5]
        replacement = tier.served()[0]
        assert replacement.cleaned == ((0, 6),) and set(replacement.replaces) <= before
        assert (tier.cleaned_to(), tier.staged(), tier.refusals()) == ((0, 6), [], [])
        assert not tier.bench.runtime.disk.exists(f"{tier.log.folder}/remote-log-cleaning")
        assert (tier.bench.counted("remotecleanrequests"), tier.bench.counted("remotecleanerrors")) == (1, 0)

    on_ordered_tier(scenario)


def test_the_result_is_what_the_leader_itself_would_have_written() -> None:
    async def fill(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.batch(*keyed(("a", "aborted"), ("x", "aborted")), producer=(7, 0, 0), transactional=True)
        tier.log.roll()
        tier.batch(*keyed(("c", "1")), producer=(8, 0, 0), transactional=True)
        tier.end((7, 0), commit=False)
        tier.log.roll()
        tier.end((8, 0), commit=True)
        tier.lead_anew(3)
        tier.segment(*keyed(("b", None), ("d", "1"), ("a", "2")))
        tier.batch(*keyed(("e", "1"), ("d", "2"), ("e", "2")), producer=(9, 0, 0))
        tier.log.roll()
        await tier.copy()
        tier.log.delete_old_segments(tier.bench.runtime.clock.time_ms())

    async def told(tier: CleanedTier) -> list[object]:
        found: list[object] = [await tier.records()]
        for batch in await tier.batches():
            # A horizon is counted from the pass, or from the end of the order's time.
            found.append((batch.base_offset, batch.last_offset, batch.count, batch.leader_epoch, batch.attributes))
            found.append(None if batch.has_delete_horizon else bytes(batch.memory))
        for segment in tier.served():
            for index in IndexType:
                if index is not IndexType.TRANSACTION or not segment.txn_index_empty:
                    found.append((index, await tier.bench.store.fetch_index(segment, index)))
        return found

    own: list[object] = []

    async def by_itself(tier: CleanedTier) -> None:
        await fill(tier)
        await tier.clean()
        assert tier.cleaned_to() is not None
        own.extend(await told(tier))

    async def by_order(tier: OrderedTier) -> None:
        await fill(tier)
        await tier.issued()
        await tier.worker.carry_out_all()
        await tier.clean()
        assert tier.refusals() == [] and tier.cleaned_to() is not None
        assert await told(tier) == own

    on_tier(by_itself, local_retention_bytes=0)
    on_ordered_tier(by_order)


def test_an_order_says_what_is_wanted() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        tier.log.delete_old_segments(tier.bench.runtime.clock.time_ms())
        tier.segment(*keyed(("e", "1")))
        await tier.copy()
        order = await tier.issued()
        assert decode_order(encode_order(order)) == order
        assert tier.staged() == [order.path("order.json"), order.path("producers.snapshot")]
        sources = [source.segment for group in order.groups for source in group.sources]
        assert sources == tier.served()
        assert (order.first, order.end, order.map, order.leader_epoch, order.claimed) == (0, 7, ((0, 7),), 0, 0)
        assert order.expires_at == order.issued_at + 600_000
        assert order.groups[-1].deletes_at is None, "its segment is local"
        assert order.groups[0].deletes_at == order.issued_at

    on_ordered_tier(scenario)


def test_an_order_is_put_into_words_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 50,000 segments takes more than a second."""

    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        disk, found = tier.bench.runtime.disk, list[object]()
        offload = disk.offload

        async def noted(work: Callable[..., object], *given: object, **options: object) -> object:
            found.append(work)
            return await offload(work, *given, **options)

        monkeypatch.setattr(disk, "offload", noted)
        await tier.issued()
        assert encode_order in found

    on_ordered_tier(scenario)


def test_a_leader_that_waits_lists_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of an order of 10,000 groups has 30,000 objects, and the leader looks in each round."""

    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        order, staging = await tier.issued(), tier.bench.tier.staging
        assert staging is not None
        listed: list[str] = []
        names = staging.names

        async def noted(folder: str = "") -> list[str]:
            listed.append(folder)
            return await names(folder)

        monkeypatch.setattr(staging, "names", noted)
        await tier.clean()
        assert (tier.role.issued is not None, tier.cleaned_to(), listed) == (True, None, [])
        await tier.worker.publish(order, await tier.worker.make(order))
        await tier.clean()
        assert (tier.cleaned_to(), listed) == ((0, 6), [])

    on_ordered_tier(scenario)


def test_an_order_that_nobody_carries_out_is_taken_back_and_the_leader_cleans() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        order = await tier.issued()
        await tier.wait(TIMEOUT_S - 1)
        await tier.clean()
        assert (len(await tier.worker.orders()), tier.cleaned_to()) == (1, None)
        await tier.wait(2)
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to(), tier.staged()) == ([1, 2, 4, 5], (0, 6), [])
        assert len(tier.bench.events.named("work order taken back: nothing was made of it in time")) == 1
        published = len(tier.bench.metadata.published)
        assert tier.role.issued is None
        await tier.bench.tier.staging.write(order.path(MANIFEST), b"{}")  # type: ignore[union-attr]
        await tier.clean()
        assert len(tier.bench.metadata.published) == published, "what comes later is not looked at"

    on_ordered_tier(scenario)


def test_a_result_that_comes_late_is_not_taken() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        order = await tier.issued()
        await tier.worker.carry_out(order)
        await tier.wait(TIMEOUT_S + 1)
        await tier.clean()
        assert tier.served()[0].cleaned and (await tier.offsets(), tier.staged()) == ([1, 2, 4, 5], [])
        assert len(tier.bench.events.named("work order taken back: nothing was made of it in time")) == 1

    on_ordered_tier(scenario)


def test_what_becomes_late_while_it_is_checked_is_not_published() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        await tier.worker.carry_out(await tier.issued())
        copies = []

        async def copying() -> None:
            copies.append(tier.role.issued)
            await tier.wait(TIMEOUT_S)

        tier.bench.store.copying = copying
        await tier.clean()
        assert tier.refusals() == ["its time is over"] and copies[0] is not None
        assert await tier.offsets() == [1, 2, 4, 5] and tier.cleaned_to() == (0, 6)

    on_ordered_tier(scenario)


def test_if_orders_are_switched_off_the_leader_cleans_at_once() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        await tier.issued()
        tier.bench.keys[ENABLE] = False
        await tier.clean()
        assert (await tier.offsets(), tier.staged(), tier.role.issued) == ([1, 2, 4, 5], [], None)

    on_ordered_tier(scenario)


def test_a_new_leader_removes_the_orders_of_former_ones_and_takes_nothing_of_them() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        old = await tier.issued()
        tier.lead_anew(1)
        new = await tier.issued()
        assert new.leader_epoch == 1 and all(path.startswith(new.folder) for path in tier.staged())
        with pytest.raises(Exception, match=r"cannot look at .*producers"):
            await tier.worker.carry_out(old)
        await tier.worker.carry_out(new)
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to(), tier.refusals()) == ([1, 2, 4, 5], (1, 6), [])

    on_ordered_tier(scenario)


def test_a_former_leader_publishes_nothing_of_its_order() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        order = await tier.issued()
        await tier.worker.carry_out(order)
        former = tier.role
        tier.role.issued = None
        tier.lead_anew(1)
        tier.role.issued, before = former.issued, tier.listed()
        tier.bench.keys[TIMEOUT] = 10**9
        window_of_former = order.leader_epoch
        await tier.clean()
        assert window_of_former == 0 and tier.role.issued is not None
        assert tier.role.issued.order.leader_epoch == 1 and tier.listed() == before

    on_ordered_tier(scenario)


def test_tombstones_stay_for_their_time_from_when_the_result_was_published() -> None:
    async def scenario(tier: OrderedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", None), ("c", "1")))
        tier.segment(*keyed(("d", "1"), ("e", "1")))
        await tier.copy()
        tier.log.delete_old_segments(tier.bench.runtime.clock.time_ms())
        order = await tier.issued()
        await tier.wait(TIMEOUT_S - 60)
        await tier.worker.carry_out(order)
        await tier.clean()
        published = tier.bench.runtime.clock.time_ms()
        assert await tier.offsets() == [1, 2, 3, 4, 5] and tier.refusals() == []
        (horizon,) = {one.base_timestamp for one in await tier.batches() if one.has_delete_horizon}
        assert horizon == order.issued_at + TIMEOUT_S * 1000 + HOUR_MS >= published + HOUR_MS
        await tier.wait(3700 + 60)
        tier.segment(*keyed(("e", "2")))
        await tier.copy()
        await tier.worker.carry_out(await tier.issued())
        await tier.clean()
        assert await tier.offsets() == [1, 3, 4, 6] and tier.refusals() == []

    on_ordered_tier(scenario, delete_retention_ms=HOUR_MS)


def test_a_transaction_without_an_end_ends_the_order() -> None:
    async def scenario(tier: OrderedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1"), ("b", "2")))
        tier.batch(*keyed(("a", "aborted")), producer=(7, 0, 0), transactional=True)
        tier.log.roll()
        tier.end((7, 0), commit=False)
        await tier.copy()
        order = await tier.issued()
        assert order.end == 3
        await tier.worker.carry_out(order)
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to()) == ([0, 2, 3], (0, 3))

    on_ordered_tier(scenario)


def test_what_needs_no_cleaning_is_not_copied() -> None:
    async def scenario(tier: OrderedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        await tier.copy()
        stored = tier.bench.stored()
        order = await tier.issued()
        await tier.worker.carry_out(order)
        assert [name.rpartition("/")[2] for name in tier.staged() if name.endswith(".log")] == []
        await tier.clean()
        assert (tier.bench.stored(), tier.cleaned_to(), tier.staged()) == (stored, (0, 2), [])

    on_ordered_tier(scenario)


def test_compressed_batches_may_have_other_bytes() -> None:
    async def scenario(tier: OrderedTier) -> None:
        for number in range(3):
            keys = [b"a" * 40, b"b%d" % number * 20]
            data = batch_of(b"x" * 100, b"%d" % number * 50, keys=keys, codec=Codec.GZIP)
            tier.log.append_as_leader(data, leader_epoch=LeaderEpoch(0))
            tier.log.raise_high_watermark(tier.log.log_end_offset)
            tier.log.roll()
        await tier.copy()
        forged = await Forged.of(tier)
        batches = await forged.batches()
        others = [rewritten(one, level=0) if one.codec is Codec.GZIP else bytes(one.memory) for one in batches]
        assert b"".join(others) != b"".join(bytes(one.memory) for one in batches)
        await forged.put_log(others)
        await forged.publish()
        await tier.clean()
        assert tier.refusals() == [] and await tier.offsets() == [1, 3, 4, 5]
        (segment,) = tier.served()
        assert await (await tier.bench.store.fetch(segment, 0)).read() == b"".join(others)

    on_ordered_tier(scenario, segment_bytes=2000)


def test_a_compressed_batch_that_was_blown_up_is_refused() -> None:
    """gzip's header may have a name of any length: whoever reads the batch would have to hold it."""

    async def forged_of(tier: OrderedTier) -> Forged:
        for number in range(3):
            data = batch_of(b"x" * 100, b"%d" % number * 50, keys=[b"a", b"b%d" % number], codec=Codec.GZIP)
            tier.log.append_as_leader(data, leader_epoch=LeaderEpoch(0))
            tier.log.raise_high_watermark(tier.log.log_end_offset)
            tier.log.roll()
        await tier.copy()
        return await Forged.of(tier)

    async def blown_up(forged: Forged) -> list[bytes]:
        batches = [bytes(one.memory) for one in await forged.batches()]
        first = BatchView(memoryview(batches[0]))
        stream = bytes(first.records)
        named = stream[:3] + b"\x08" + stream[4:10] + b"n" * 10_000 + b"\0" + stream[10:]
        return [bytes(rewritten(first, stream=named)), *batches[1:]]

    async def scenario(tier: OrderedTier) -> None:
        forged = await forged_of(tier)
        await forged.put_log(await blown_up(forged))
        await forged.publish()
        await tier.clean()
        (refusal,) = tier.refusals()
        assert re.search("a batch of 10[0-9]{3} bytes, where 4[0-9]{3} are allowed", refusal), refusal
        assert await tier.offsets() == [1, 3, 4, 5]

    on_ordered_tier(scenario, segment_bytes=2000)


def test_a_batch_that_grows_too_much_is_left_to_the_leader() -> None:
    async def scenario(tier: OrderedTier) -> None:
        data = batch_of(b"x" * 1000, keys=[b"a"], codec=Codec.GZIP)
        tier.log.append_as_leader(data, leader_epoch=LeaderEpoch(0))
        tier.log.raise_high_watermark(tier.log.log_end_offset)
        tier.log.roll()
        await tier.copy()
        order = await tier.issued()
        with pytest.raises(CannotBeCarriedOut, match="the batch at 0 has more than 500 bytes of records"):
            await tier.worker.make(replace(order, limit=500))

    on_ordered_tier(scenario)


def test_winners_of_more_records_than_there_are_are_refused() -> None:
    """Markers have offsets, and none."""

    async def scenario(tier: OrderedTier) -> None:
        tier.batch(*keyed(("a", "1"), ("a", "2")), producer=(7, 0, 0), transactional=True)
        tier.end((7, 0), commit=True)
        tier.log.roll()
        await tier.copy()
        forged = await Forged.of(tier)
        assert await forged.winners() == [1, 1]
        await forged.put_winners([1, 1, 2])
        await forged.publish()
        await tier.clean()
        assert tier.refusals() == ["winners are told of more records than there are from offset 0 on"]
        assert await tier.offsets() == [1]

    on_ordered_tier(scenario)
