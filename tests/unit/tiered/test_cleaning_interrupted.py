"""A pass of cleaning that is interrupted between any two of its steps: nothing is lost, and a later pass ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Disk, Report, WorkerEnded
from milena.storage.files.names import LOG, segment_file
from milena.tiered.cleaning.steps import clean_tier
from milena.tiered.metadata.metadata_manager import RemoteLogMetadataError
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.shared.tier import FAILURES
from milena.tiered.store.remote_storage import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from milena.tiered.work import cleaning_pass
from milena.tiered.work.tier_cleaner import TierCleaner
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.cleaned_tier import CleanedTier, keyed, on_tier

Action = Callable[[CleanedTier], Awaitable[None]]
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
LEAST = 4
"""Calls of a pass, at least."""
STORE, METADATA = ("fetch", "fetch_index", "copy"), ("add", "update")


class Interrupted:
    """Calls ``action`` at the ``at``-th call of the store or of the metadata, before the call or after it."""

    def __init__(self, tier: CleanedTier, at: int, action: Action, calls: tuple[str, ...], *, after: bool) -> None:
        self.calls = 0
        self.done = False
        """Whether the pass is over."""
        self._tier = tier
        self._at = at
        self._action = action
        self._after = after
        store, metadata = tier.bench.store, tier.bench.metadata
        for name in calls:
            owner = store if name in STORE else metadata
            setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*arguments: Any, **options: Any) -> Any:
            self.calls += not self.done
            now = self.calls == self._at and not self.done
            if now and not self._after:
                await self._action(self._tier)
            result = await call(*arguments, **options)
            if now and self._after:
                await self._action(self._tier)
            return result

        return wrapped


async def prepared(tier: CleanedTier) -> None:
    for number in range(3):
        tier.segment(*keyed(("a", f"{number}"), ("b", f"{number}" * 50)))
    tier.segment(*keyed(("a", None), ("b", "x"), ("c", "1")))
    tier.segment(*keyed(("a", "last"), ("c", "2"), ("d", "1")))
    await tier.copy()


EXPECTED = {b"a": b"last", b"b": b"x", b"c": b"2", b"d": b"1"}


async def state(tier: CleanedTier) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in await tier.records()}


def interrupted(
    action: Action, *, after: bool, calls: tuple[str, ...] = STORE + METADATA, check: Action | None = None
) -> None:
    """At each call in turn."""
    at, reached = 0, True
    while reached:
        at += 1

        async def scenario(tier: CleanedTier, at: int = at) -> None:
            nonlocal reached
            await prepared(tier)
            found = Interrupted(tier, at, action, calls, after=after)
            with suppress(*FAILURES):
                await tier.clean()
            reached, found.done = found.calls >= at, True
            assert await state(tier) == EXPECTED
            if check is not None:
                await check(tier)
            await tier.wait(600)
            await tier.clean()
            assert await state(tier) == EXPECTED
            assert tier.cache.cleaned_to is not None and tier.cache.cleaned_to.offset == 12
            assert len(await tier.offsets()) == len(EXPECTED)
            for _ in range(3):
                await tier.wait(3700)
                await tier.expire()
            assert all(one[2] == "COPY" for one in tier.listed())
            assert tier.bench.stored() == [one[0] for one in tier.listed()] == [one[0] for one in tier.ranges()]
            assert not tier.bench.runtime.disk.exists(f"{tier.log.folder}/remote-log-cleaning")

        on_tier(scenario)
    assert at > LEAST


def failing(error: Exception) -> Action:
    async def fail(_tier: CleanedTier) -> None:
        raise error

    return fail


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (RetriableRemoteStorageError("full"), STORE),
        (RemoteStorageError("denied"), STORE),
        (RemoteLogMetadataError("no answer"), METADATA),
        (OSError(28, "disk full"), STORE),
    ],
    ids=["retriable", "final", "metadata", "disk"],
)
def test_by_an_error(error: Exception, calls: tuple[str, ...], after: bool) -> None:
    interrupted(failing(error), after=after, calls=calls)


async def replaced(tier: CleanedTier) -> None:
    tier.lead_again(tier.epoch + 1)
    tier.cleaner = TierCleaner(tier.bench.tier)


@pytest.mark.parametrize("after", [False, True])
def test_by_the_end_of_the_office(after: bool) -> None:
    async def no_more_is_published(tier: CleanedTier) -> None:
        by = [one.leader_epoch for one in tier.bench.metadata.published if one.state is STARTED]
        assert set(by) == {0}

    interrupted(replaced, after=after, check=no_more_is_published)


async def successor_cleans(tier: CleanedTier) -> None:
    await replaced(tier)
    with suppress(*FAILURES):
        await tier.clean()


def test_by_a_successor_that_cleans_at_once() -> None:
    interrupted(successor_cleans, after=False)


def test_a_pass_of_a_former_office_that_ends_late_takes_no_files_of_the_next_one() -> None:
    """The former one waits for the store. Without its index of aborted transactions the next one would clean records in
    favour of aborted ones."""

    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.batch(*keyed(("a", "aborted")), producer=(7, 0, 0), transactional=True)
        tier.end((7, 0), commit=False)
        tier.segment(*keyed(("c", "1"), ("c", "2")))
        await tier.copy()
        fetch, waiting, goes_on, fetches = tier.bench.store.fetch, asyncio.Event(), asyncio.Event(), 0

        async def fetching(*arguments: Any, **options: Any) -> Any:
            nonlocal fetches
            fetches += 1
            if fetches == 1:
                waiting.set()
                await goes_on.wait()
            elif former.done() is False:
                goes_on.set()
                await asyncio.wait([former])
            return await fetch(*arguments, **options)

        tier.bench.store.fetch = fetching  # type: ignore[method-assign]
        former = asyncio.ensure_future(tier.clean())
        await waiting.wait()
        tier.lead_again(1)
        await tier.clean()
        goes_on.set()
        await former
        assert await state(tier) == {b"a": b"1", b"b": b"1", b"c": b"2"} or tier.cleaned_to() is None
        await tier.clean()
        assert (await state(tier), tier.cleaned_to()) == ({b"a": b"1", b"b": b"1", b"c": b"2"}, (1, 6))
        assert not tier.bench.events.named("cleaning in the tier failed")

    on_tier(scenario)


async def expires(tier: CleanedTier) -> None:
    await tier.expire()
    await tier.wait(61)
    await tier.expire()


def test_by_the_expiration() -> None:
    interrupted(expires, after=False)


def test_by_the_deletion_of_records() -> None:
    async def delete(tier: CleanedTier) -> None:
        tier.log.increment_log_start(Offset(5))
        await expires(tier)

    interrupted(delete, after=False)


def test_a_source_that_retention_deletes_ends_the_pass_and_is_no_failure() -> None:
    """Before each call of the store in turn."""
    at, ended = 0, 0
    reached = True
    while reached:
        at += 1

        async def delete(tier: CleanedTier) -> None:
            tier.log.increment_log_start(Offset(5))
            await expires(tier)

        async def scenario(tier: CleanedTier, at: int = at) -> None:
            nonlocal reached, ended
            await prepared(tier)
            found = Interrupted(tier, at, delete, STORE, after=False)
            await tier.clean()
            reached = found.calls >= at
            ended += bool(tier.bench.events.named("cleaning in the tier ended"))
            assert tier.bench.counted("remotecleanerrors") == 0
            assert tier.role.uncleanable is None

        on_tier(scenario)
    assert at > LEAST and ended


def test_an_object_that_is_missing_although_its_segment_serves_is_a_failure() -> None:
    async def scenario(tier: CleanedTier) -> None:
        await prepared(tier)
        for name in [one for one in tier.bench.world.tier.files if one.endswith(".log")]:
            del tier.bench.world.tier.files[name]
        with pytest.raises(RemoteResourceNotFound):
            await tier.clean()
        assert tier.bench.counted("remotecleanerrors") == 1

    on_tier(scenario)


def test_by_the_death_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(disk: Disk, report: Report, *arguments: Any) -> Any:
        steps = clean_tier(disk, report, *arguments)
        order = yield next(steps)
        for _ in range(3):
            order = yield steps.send(order)
        raise WorkerEnded("killed")

    async def scenario(tier: CleanedTier) -> None:
        await prepared(tier)
        monkeypatch.setattr(cleaning_pass, "clean_tier", dying)
        await tier.clean()
        assert tier.role.uncleanable is None and tier.bench.counted("remotecleanerrors") == 1
        monkeypatch.undo()
        await tier.clean()
        assert await state(tier) == EXPECTED and len(await tier.offsets()) == 4

    on_tier(scenario)


def test_a_damaged_segment_stops_the_cleaning_of_its_partition_alone_and_is_reported() -> None:
    async def scenario(tier: CleanedTier) -> None:
        await prepared(tier)
        path = next(name for name in sorted(tier.bench.world.tier.files) if name.endswith(".log"))
        tier.bench.world.tier.corrupt(path, 80)
        listed = tier.listed()
        await tier.clean()
        assert tier.role.uncleanable is not None and "00000.log: the batch at 70" in tier.role.uncleanable
        assert tier.bench.events.named("log cannot be cleaned in the tier")
        published = len(tier.bench.metadata.published)
        await tier.clean()
        assert (tier.listed(), len(tier.bench.metadata.published)) == (listed, published)

    on_tier(scenario)


def test_the_successor_goes_on_where_the_last_finished_pass_has_ended() -> None:
    async def scenario(tier: CleanedTier) -> None:
        await prepared(tier)
        await tier.clean()
        await replaced(tier)
        tier.segment(*keyed(("a", "newest"), ("e", "1")))
        data = batch_of(b"active", keys=[b"f"], timestamp=tier.bench.runtime.clock.time_ms())
        tier.log.append_as_leader(data, leader_epoch=LeaderEpoch(1))
        await tier.copy()
        await tier.clean()
        assert tier.cache.cleaned_to == (1, 14)
        assert {one.cleaned for one in tier.served() if one.cleaned} >= {((0, 12), (1, 14))}
        done = tier.bench.events.named("log cleaned in the tier")
        assert [(one["dirty_from"], one["cleaned_to"]) for one in done] == [(0, 12), (12, 14)]

    on_tier(scenario)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("to", ["/data/t-0.0123-delete", "/elsewhere/t-0"])
def test_a_pass_that_begins_when_its_log_is_gone_makes_no_folder_of_it(to: str, ends: bool) -> None:
    """Such a folder would be loaded as a log, and as a second one if the first was moved to another directory."""

    async def scenario(tier: CleanedTier) -> None:
        await prepared(tier)
        check, disk, folder = tier.bench.store.check, tier.bench.runtime.disk, tier.log.folder

        async def checking() -> None:
            await check()
            disk.make_folders("/elsewhere")
            disk.rename(folder, to)
            if ends:
                tier.role.end()

        tier.bench.store.check = checking  # type: ignore[method-assign]
        with suppress(FileNotFoundError):
            await tier.clean()
        assert not disk.exists(folder) and disk.exists(f"{to}/{segment_file(0, LOG)}")

    on_tier(scenario)


@pytest.mark.parametrize("damaged", [IndexType.LEADER_EPOCH, IndexType.PRODUCER_SNAPSHOT])
def test_a_truncated_object_is_not_copied_into_a_cleaned_segment(damaged: IndexType) -> None:
    async def scenario(tier: CleanedTier) -> None:
        await prepared(tier)
        before, fetch_index = tier.listed(), tier.bench.store.fetch_index

        async def truncated(metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
            data = await fetch_index(metadata, index)
            return data[:-1] if index is damaged else data

        tier.bench.store.fetch_index = truncated  # type: ignore[method-assign]
        await tier.clean()
        assert (tier.listed(), tier.cache.cleaned_to) == (before, None)

    on_tier(scenario)
