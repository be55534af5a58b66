"""Damage in the controller's log: what was committed is kept or asked for, and never dropped in silence."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from milena.lab.world.power import PAGE
from milena.lab.world.world import World, simulate
from milena.node.metadata.committed_offset import FILE_NAME as COMMITTED
from milena.node.metadata.snapshot_keeper import SnapshotKeeper
from milena.protocol.records.batch import BatchView, iter_batches
from milena.storage.log.segment_swap import SET_ASIDE
from milena.storage.manager.log_dir import DirectoryError
from tests.unit.controller.simulated import HOST, Site

FOLDER = "/data/__cluster_metadata-0"
LOG = f"{FOLDER}/{0:020d}.log"
TOPICS = 12


async def stopped(world: World, *, snapshot_after: int | None = None) -> Site:
    """A controller with topics, killed; a snapshot was taken when there were so many."""
    site = await Site.start(world)
    await site.register(1)
    for number in range(TOPICS):
        await site.create(f"t{number}")
        if number + 1 == snapshot_after:
            assert isinstance(site.controller._keeper, SnapshotKeeper)
            await site.controller._keeper.take()
    site.machine.kill()
    await site.machine.wait_ended()
    return site


def batches(site: Site) -> list[tuple[int, BatchView]]:
    """Of the log's first segment, with their positions."""
    found, position = [], 0
    for batch in iter_batches(memoryview(bytearray(site.machine.storage.files[LOG].data))):
        found.append((position, batch))
        position += batch.size_in_bytes
    return found


def batch_with(site: Site, topic: str) -> tuple[int, BatchView]:
    data = bytes(site.machine.storage.files[LOG].data)
    at = data.index(topic.encode())
    return next((position, b) for position, b in batches(site) if position <= at < position + b.size_in_bytes)


def names(site: Site) -> set[str]:
    return set(site.controller.state.image.topics)


ALL = {f"t{number}" for number in range(TOPICS)}
PLACES: dict[str, Callable[[BatchView], int]] = {
    "base offset": lambda _: 7,
    "length": lambda _: 10,
    "higher leader epoch": lambda _: 13,
    "lower leader epoch": lambda _: 15,
    "magic": lambda _: 16,
    "records": lambda batch: batch.size_in_bytes - 3,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_controller_does_not_start_without_what_it_had_committed(place: str) -> None:
    async def run(world: World) -> None:
        site = await stopped(world)
        position, batch = batch_with(site, "t5")
        site.machine.storage.corrupt(LOG, position + PLACES[place](batch))
        before = dict(site.machine.storage.files)
        with pytest.raises(DirectoryError) as refused:
            await site.restart()
        said = str(refused.value)
        assert f"the offsets {batch.base_offset} to {batch.last_offset} are lost" in said
        assert f"at byte {position}" in said and "milena metadata repair" in said
        assert set(site.machine.storage.files) == set(before)
        world.machine(HOST).kill()
        # The byte turns back: everything is there.
        site.machine.storage.corrupt(LOG, position + PLACES[place](batch))
        site = await site.restart()
        assert names(site) == ALL

    simulate(run, seed=1)


@pytest.mark.parametrize("at", [13, 15])
def test_a_leader_epoch_that_begins_with_damage_is_not_taken_for_one(at: int) -> None:
    async def run(world: World) -> None:
        site = await stopped(world)
        site = await site.restart()
        await site.create("more")
        site.machine.kill()
        await site.machine.wait_ended()
        position, batch = next((position, b) for position, b in batches(site) if b.is_control and b.base_offset)
        site.machine.storage.corrupt(LOG, position + at)
        with pytest.raises(DirectoryError, match=f"the offsets {batch.base_offset} to {batch.last_offset} are lost"):
            await site.restart()

    simulate(run, seed=11)


def test_records_that_a_snapshot_covers_need_not_be_sound() -> None:
    async def run(world: World) -> None:
        site = await stopped(world, snapshot_after=8)
        position, batch = batch_with(site, "t5")
        site.machine.storage.corrupt(LOG, position + batch.size_in_bytes - 3)
        site = await site.restart()
        assert names(site) == ALL
        assert site.controller.metadata.log.log_start_offset == batch.last_offset + 1
        assert f"{LOG}{SET_ASIDE}" in site.machine.storage.files
        await site.create("more")
        site.machine.power_off()
        site = await site.restart()
        assert names(site) == ALL | {"more"}

    simulate(run, seed=2)


@pytest.mark.parametrize("moment", range(4))
def test_a_controller_that_is_stopped_while_it_sets_damage_aside_goes_on_with_it(moment: int) -> None:
    async def run(world: World) -> None:
        site = await stopped(world, snapshot_after=8)
        position, batch = batch_with(site, "t5")
        storage = site.machine.storage
        storage.corrupt(LOG, position + batch.size_in_bytes - 3)
        left = moment

        def stop(operation: str, path: str) -> None:
            nonlocal left
            if ".log" in path and operation in ("rename", "sync"):
                left -= 1
                if left < 0:
                    storage.before = lambda _operation, _path: None
                    site.machine.power_off()
                    raise OSError("no power")

        storage.before = stop
        with pytest.raises((DirectoryError, OSError)):
            await site.restart()
        assert left < 0
        site = await site.restart()
        assert names(site) == ALL

    simulate(run, seed=3)


def test_damage_behind_the_snapshot_is_refused_too() -> None:
    async def run(world: World) -> None:
        site = await stopped(world, snapshot_after=4)
        position, batch = batch_with(site, "t6")
        site.machine.storage.corrupt(LOG, position + batch.size_in_bytes - 3)
        with pytest.raises(DirectoryError, match=f"the offsets {batch.base_offset} to"):
            await site.restart()

    simulate(run, seed=4)


def test_a_damaged_last_batch_that_was_committed_is_no_torn_end() -> None:
    async def run(world: World) -> None:
        site = await stopped(world)
        position, batch = batches(site)[-1]
        site.machine.storage.corrupt(LOG, position + batch.size_in_bytes - 1)
        with pytest.raises(DirectoryError, match=f"it ends at offset {batch.base_offset} .* were committed"):
            await site.restart()

    simulate(run, seed=5)


def test_a_torn_end_is_cut_as_ever() -> None:
    async def run(world: World) -> None:
        site = await stopped(world)
        site.machine.storage.files[LOG].data += b"\0\0\0\0\0\0\1\0\0\0\0\x99 torn"
        site = await site.restart()
        assert names(site) == ALL

    simulate(run, seed=6)


@pytest.mark.parametrize("known", [False, True])
def test_pages_that_a_loss_of_power_kept_from_the_disk_are_a_torn_end(known: bool) -> None:
    """The offset that is known to be committed may be lost as well: a page of zeros is enough."""

    async def run(world: World) -> None:
        site = await stopped(world)
        file = site.machine.storage.files[LOG]
        whole = bytes(file.data)
        # Unacknowledged writes: the same batches again with later offsets, their first page zeros.
        rest = bytearray()
        base = batches(site)[-1][1].last_offset + 1
        while len(rest) < 3 * PAGE:
            for _, batch in batches(site):
                count = batch.last_offset - batch.base_offset
                data = bytearray(batch.memory)
                data[:8] = base.to_bytes(8, "big")
                rest += data
                base += count + 1
        end = PAGE - len(whole) % PAGE + PAGE
        rest[:end] = bytes(end)
        file.data += rest
        if not known:
            del site.machine.storage.files[f"{FOLDER}/{COMMITTED}"]
        site = await site.restart()
        assert names(site) == ALL

    simulate(run, seed=7)


def snapshot_of(site: Site) -> str:
    (path,) = [path for path in site.machine.storage.files if path.startswith(FOLDER) and path.endswith(".checkpoint")]
    return path


def test_a_damaged_snapshot_is_passed_over_where_the_log_has_what_it_stood_for() -> None:
    async def run(world: World) -> None:
        site = await stopped(world, snapshot_after=8)
        path = snapshot_of(site)
        site.machine.storage.corrupt(path, 200)
        site = await site.restart()
        assert names(site) == ALL
        assert site.controller.metadata.snapshots.ids == []
        assert f"{path}.damaged" in site.machine.storage.files

    simulate(run, seed=8)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_without_what_was_before_it_is_refused_in_one_sentence(damaged: bool) -> None:
    async def run(world: World) -> None:
        site = await stopped(world, snapshot_after=8)
        path, files = snapshot_of(site), site.machine.storage.files
        end = int(path.rpartition("/")[2][:20])
        del files[LOG].data[: next(position for position, b in batches(site) if b.base_offset == end)]
        files[f"{FOLDER}/{end:020d}.log"] = files.pop(LOG)
        if damaged:
            site.machine.storage.corrupt(path, 200)
        else:
            del files[path]
        with pytest.raises(
            DirectoryError, match=f"begins at offset {end}, and there is no snapshot .*milena metadata"
        ) as refused:
            await site.restart()
        assert ("checksum" in str(refused.value)) == damaged

    simulate(run, seed=9)


def test_a_snapshot_that_does_not_fit_on_the_disk_is_taken_later() -> None:
    async def run(world: World) -> None:
        site = await Site.start(world, metadata_log_max_record_bytes_between_snapshots=20_000)
        full = True

        def check(operation: str, path: str) -> None:
            if full and operation == "append" and path.endswith(".part"):
                raise OSError(errno.ENOSPC, "No space left on device", path)

        site.machine.storage.before = check
        await site.register(1)
        await site.create("t", 300)
        clock = site.controller.runtime.clock
        await clock.sleep(10)
        assert site.machine.failures == [] and site.controller.runtime.contained.count == 0
        await site.create("u")
        assert site.controller.metadata.snapshots.ids == []
        full = False
        await clock.sleep(60)
        assert site.controller.metadata.snapshots.ids

    simulate(run, seed=10)


def test_a_full_disk_at_the_start_is_an_error_that_names_the_directory() -> None:
    async def run(world: World) -> None:
        site = await Site.start(world)

        def check(operation: str, path: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        site.machine.kill()
        site.machine.storage.before = check
        with pytest.raises(OSError, match="No space left on device") as refused:
            await site.restart()
        assert refused.value.filename == site.controller.config.metadata_log_dir

    simulate(run, seed=11)
