"""A result of a work order during whose check and publication something happens: at each call of the store, of the
metadata and of the staging prefix in turn. Nothing is lost, and later passes end it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from milena.protocol.types import Offset
from milena.tiered.orders.order import MANIFEST
from milena.tiered.shared.tier import FAILURES
from milena.tiered.store.remote_storage import RetriableRemoteStorageError
from tests.unit.tiered.cleaned_tier import keyed
from tests.unit.tiered.ordered_tier import TIMEOUT_S, OrderedTier, on_ordered_tier

Action = Callable[[OrderedTier], Awaitable[None]]
EXPECTED = {b"a": b"last", b"b": b"x", b"c": b"2", b"d": b"1"}


async def prepared(tier: OrderedTier) -> None:
    for number in range(3):
        tier.segment(*keyed(("a", f"{number}"), ("b", f"{number}" * 50)))
    tier.segment(*keyed(("a", None), ("b", "x"), ("c", "1")))
    tier.segment(*keyed(("a", "last"), ("c", "2"), ("d", "1")))
    await tier.copy()
    tier.log.delete_old_segments(tier.bench.runtime.clock.time_ms())
    await tier.worker.carry_out(await tier.issued())


async def values(tier: OrderedTier) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in await tier.records()}


class Interrupted:
    """Calls ``action`` before the ``at``-th call, or after it."""

    def __init__(self, tier: OrderedTier, at: int, action: Action, *, after: bool) -> None:
        self.calls = 0
        self.done = False
        self._tier = tier
        self._at = at
        self._action = action
        self._after = after
        for owner, names in (
            (tier.bench.store, ("fetch", "fetch_index", "copy")),
            (tier.bench.metadata, ("add", "update")),
            (tier.bench.tier.staging, ("size", "read")),
        ):
            for name in names:
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


def interrupted(action: Action, *, after: bool) -> None:
    at, reached = 0, True
    while reached:
        at += 1

        async def scenario(tier: OrderedTier, at: int = at) -> None:
            nonlocal reached
            await prepared(tier)
            found = Interrupted(tier, at, action, after=after)
            with suppress(*FAILURES):
                await tier.clean()
            reached, found.done = found.calls >= at, True
            assert await values(tier) == EXPECTED and tier.role.uncleanable is None
            for _ in range(3):
                await tier.wait(TIMEOUT_S + 1)
                await tier.clean()
                await tier.worker.carry_out_all()
                await tier.clean()
            assert await values(tier) == EXPECTED
            assert tier.cache.cleaned_to is not None and tier.cache.cleaned_to.offset == 12
            assert len(await tier.offsets()) == len(EXPECTED)
            assert not tier.bench.runtime.disk.exists(f"{tier.log.folder}/remote-log-cleaning")

        on_ordered_tier(scenario)
    assert at > 20


async def lead_anew(tier: OrderedTier) -> None:
    tier.lead_anew(tier.epoch + 1)


async def fail(tier: OrderedTier) -> None:
    raise RetriableRemoteStorageError("the store is away")


@pytest.mark.parametrize("after", [False, True])
def test_another_leads(after: bool) -> None:
    interrupted(lead_anew, after=after)


def test_the_store_fails() -> None:
    interrupted(fail, after=False)


def test_its_time_is_over() -> None:
    async def wait(tier: OrderedTier) -> None:
        await tier.wait(TIMEOUT_S)

    interrupted(wait, after=False)


def test_a_result_whose_sources_were_deleted_meanwhile_is_dropped() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await prepared(tier)
        tier.log.increment_log_start(Offset(3))
        await tier.expire()
        await tier.wait(61)
        await tier.expire()
        await tier.clean()
        (ended,) = tier.bench.events.named("cleaning in the tier ended")
        assert "have changed" in str(ended["reason"]) and tier.refusals() == [] and tier.staged() == []
        assert await values(tier) == EXPECTED and tier.cleaned_to() == (0, 12)

    on_ordered_tier(scenario)


def test_what_has_changed_since_it_was_checked_is_not_published() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await prepared(tier)
        first, *_, name = [path for path in tier.staged() if path.endswith(".log")]
        assert first != name
        data = await tier.worker.staging.read(name, 0, await tier.worker.staging.size(name))

        async def copying() -> None:
            await tier.worker.staging.write(name, data[:-1] + bytes([data[-1] ^ 1]))

        tier.bench.store.copying = copying
        await tier.clean()
        assert tier.refusals() == [f"{name.rpartition('/')[2]} has another checksum than the manifest says"]
        assert await values(tier) == EXPECTED and tier.cleaned_to() == (0, 12)

    on_ordered_tier(scenario)


def test_an_order_that_cannot_be_written_is_none() -> None:
    async def scenario(tier: OrderedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("a", "2")))
        await tier.copy()
        assert tier.bench.tier.staging is not None
        tier.bench.tier.staging.write = lambda *_: fail(tier)  # type: ignore[method-assign]
        await tier.clean()
        assert tier.cleaned_to() == (0, 2) and await tier.offsets() == [1]
        assert len(tier.bench.events.named("work order not issued")) == 1

    on_ordered_tier(scenario)


def test_a_manifest_that_vanishes_is_none() -> None:
    async def scenario(tier: OrderedTier) -> None:
        await prepared(tier)
        issued, staging = tier.role.issued, tier.worker.staging
        assert issued is not None
        path = issued.order.path(MANIFEST)
        size, looks = staging.size, list[str]()

        async def vanishing(name: str) -> int:
            looks.append(name)
            if looks == [path, path]:  # the first time, it was seen to be there
                await staging.remove(path)
            return await size(name)

        staging.size = vanishing  # type: ignore[method-assign, assignment]
        await tier.clean()
        assert tier.refusals() == ["its manifest has gone"] and tier.cleaned_to() == (0, 12)

    on_ordered_tier(scenario)
