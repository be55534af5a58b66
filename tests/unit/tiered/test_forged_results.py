"""Whatever somebody makes of a work order: unless it is what the leader's own cleaning would have written, one sentence
says why it is refused, nothing of it is published, all of it is removed, and the leader cleans the partition itself."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from milena.protocol.records.batch import Codec
from milena.tiered.orders.keys import ENTRY, entry_of, key_hash
from milena.tiered.orders.order import MANIFEST
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.cleaned_tier import keyed
from tests.unit.tiered.forged_results import Forged, encoded, later, replaced, rewritten
from tests.unit.tiered.ordered_tier import OrderedTier, on_ordered_tier

Forge: TypeAlias = Callable[[Forged], Awaitable[None]]
CASES: list[tuple[Forge, str]] = []


def refused(reason: str) -> Callable[[Forge], Forge]:
    """A forgery, and what the leader says of it."""

    def entered(forge: Forge) -> Forge:
        CASES.append((forge, reason))
        return forge

    return entered


async def filled(tier: OrderedTier) -> None:
    """Two groups: offsets 0 to 5 become 1, 2, 4; and 6 to 11 become 6, 8, 9, 10, 11."""
    tier.segment(*keyed(("aaaa", "1111"), ("bbbb", "1111")))
    tier.segment(*keyed(("aaaa", "2222"), ("cccc", "1111")))
    tier.segment(*keyed(("cccc", "2222"), ("dddd", "1111")))
    tier.batch(*keyed(("eeee", "1111"), ("dddd", "2222"), ("ffff", "1111")), producer=(7, 0, 0))
    tier.log.roll()
    tier.segment(*keyed(("dddd", "3333")))
    tier.segment(*keyed(("gggg", None), ("hhhh", "1111")))
    await tier.copy()


KEPT = [1, 2, 4, 6, 8, 9, 10, 11]


def started(tier: OrderedTier) -> list[RemoteLogSegmentMetadata]:
    published = [one for one in tier.bench.metadata.published if isinstance(one, RemoteLogSegmentMetadata)]
    return [one for one in published if one.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and one.cleaned]


# -- the manifest


def text(data: bytes, reason: str, name: str) -> None:
    async def forge(forged: Forged) -> None:
        forged.text = data

    forge.__name__ = name
    CASES.append((forge, reason))


text(b"", "the manifest is not valid JSON", "empty")
text(b"{", "the manifest is not valid JSON", "half_an_object")
text(b"\xff\xfe\x00", "the manifest is not valid JSON", "no_text")
text(b"[]", "the manifest is no JSON object", "a_list")
text(b"[" * 70_000, "the manifest is not valid JSON", "deep")
text(b"{}", "the manifest has no version", "no_fields")


def plain(change: Callable[[dict[str, Any]], object], reason: str, name: str) -> None:
    async def forge(forged: Forged) -> None:
        found = forged.plain()
        change(found)
        forged.write_plain(found)

    forge.__name__ = name
    CASES.append((forge, reason))


ID = "AAAAAAAAAAAAAAAAAAAAAQ"
plain(lambda one: one.update(version=2), "the manifest has version 2, 1 is known", "later_version")
plain(lambda one: one.update(order=ID), f"the manifest is of the order {ID}", "another_order")
plain(lambda one: one.update(order="x"), "the manifest has order=x, which is not an id", "no_id")
plain(lambda one: one.update(leaderEpoch=1), "the manifest is of leader epoch 1, not 0", "another_epoch")
plain(
    lambda one: one.update(version="1\n\ud800"),
    r"the manifest has version=1\\n\\ud800, which is not a number",
    "not_to_be_printed",
)
plain(lambda one: one.update(version=[[]] * 9), r"version=\[\[\], \[\], \[\], .*\.\.\.\], which", "a_long_list")
plain(lambda one: one["groups"].pop(), "the manifest has 1 groups, the order 2", "a_group_less")
plain(lambda one: one["groups"].append(one["groups"][0]), "the manifest has 3 groups", "a_group_more")
plain(lambda one: one.pop("keys"), "the manifest has no keys", "no_keys")
plain(lambda one: one.update(keys={}), "the manifest has keys={}, which is not a list", "keys_of_another_type")
plain(lambda one: one["keys"].append(3), "an object of the manifest is no JSON object", "no_object")
plain(
    lambda one: one["groups"][0].update(winners=one["groups"][1]["winners"]),
    "the manifest names an object twice",
    "an_object_twice",
)
plain(lambda one: one["groups"][0]["log"].update(size=-1), "has size=-1, which is not a number from 0", "negative_size")
plain(lambda one: one["groups"][0]["log"].update(size=True), "has size=True, which is not a number", "size_is_a_flag")
plain(lambda one: one["groups"][0]["log"].update(size=1 << 40), "which is not a number from 0 to", "immense_log")
plain(lambda one: one["groups"][0]["winners"].update(size=56), "which is not a number from 0 to 48", "immense_winners")
plain(lambda one: one["keys"][0].update(size=13 * 24), "which is not a number from 0 to 288", "immense_keys")
plain(
    lambda one: one["keys"].append({"name": "keys-9.keys", "size": 240, "crc": 0}),
    "keys of more than 288 bytes",
    "many_keys",
)
plain(lambda one: one["groups"][0]["log"].update(crc="x"), "has crc=x, which is not a number", "crc_is_text")
plain(
    lambda one: one["groups"][0]["log"].update(name="../../../kafka-tiered-storage/x-0.log"),
    "the manifest names an object '../../../kafka",
    "a_name_elsewhere",
)


@refused("the manifest is not valid JSON")
async def half_written(forged: Forged) -> None:
    await forged.publish()
    whole = await forged.tier.worker.staging.read(forged.order.path(MANIFEST), 0, 200)
    forged.text = whole[:100]


@refused("its manifest has 71681 bytes, 71680 are allowed")
async def immense_manifest(forged: Forged) -> None:
    """An order of six sources; to read 64 MiB of lists took seconds, in which the loop stood still."""
    forged.text = b" " * ((64 << 10) + 6 * (1 << 10) + 1)


# -- objects


@refused(r"group-0.log is missing")
async def log_missing(forged: Forged) -> None:
    await forged.tier.worker.staging.remove(forged.order.path("group-0.log"))


@refused("group-1.winners is missing")
async def winners_missing(forged: Forged) -> None:
    await forged.tier.worker.staging.remove(forged.order.path("group-1.winners"))


@refused("keys-1.keys is missing")
async def keys_missing(forged: Forged) -> None:
    await forged.tier.worker.staging.remove(forged.order.path("keys-1.keys"))


@refused(r"group-0.log has \d+ bytes, the manifest says \d+")
async def log_cut(forged: Forged) -> None:
    await forged.overwrite(forged.log(), (await forged.read(forged.log()))[:-1])


@refused("group-0.log has another checksum than the manifest says")
async def log_damaged(forged: Forged) -> None:
    data = bytearray(await forged.read(forged.log()))
    data[70] ^= 1
    await forged.overwrite(forged.log(), bytes(data))


@refused("bytes, .* are there|ends within|is not a whole")
async def log_cut_in_the_manifest_too(forged: Forged) -> None:
    await forged.put_log([(await forged.read(forged.log()))[:-5]])


@refused("has CRC|checksum|CRC-32C")
async def log_damaged_in_the_manifest_too(forged: Forged) -> None:
    data = bytearray(await forged.read(forged.log()))
    data[-3] ^= 1
    await forged.put_log([data])


@refused("what is to become of the batch at 0 is missing")
async def log_empty(forged: Forged) -> None:
    await forged.put_log([])


@refused("a batch from .* is not within 0 and 6")
async def the_log_of_another_group(forged: Forged) -> None:
    await forged.put_log(await forged.batches(1))


@refused(r"what was made|becomes?|batch")
async def log_of_noise(forged: Forged) -> None:
    await forged.put_log([bytes(range(256)) * 2])


# -- batches


@refused("what is to become of the batch at 2 is another one, at 2")
async def another_value(forged: Forged) -> None:
    batches = await forged.batches()
    at = next(at for at, one in enumerate(batches) if one.base_offset == 2)
    record = replaced(encoded(batches[at])[0][0], b"2222", b"9999")
    await forged.put_log([*batches[:at], rewritten(batches[at], records=[record]), *batches[at + 1 :]])


@refused("what is to become of the batch at 2 is another one, at 2")
async def another_key(forged: Forged) -> None:
    batches = await forged.batches()
    at = next(at for at, one in enumerate(batches) if one.base_offset == 2)
    record = replaced(encoded(batches[at])[0][0], b"aaaa", b"zzzz")
    await forged.put_log([*batches[:at], rewritten(batches[at], records=[record]), *batches[at + 1 :]])


@refused("what is to become of the batch at 2 is another one, at 2")
async def another_time(forged: Forged) -> None:
    batches = await forged.batches()
    at = next(at for at, one in enumerate(batches) if one.base_offset == 2)
    record = later(encoded(batches[at])[0][0], 5)
    await forged.put_log([*batches[:at], rewritten(batches[at], records=[record]), *batches[at + 1 :]])


def field(name: str, value: Any, reason: str) -> None:
    async def forge(forged: Forged) -> None:
        batches = await forged.batches(1)
        await forged.put_log([rewritten(batches[0], **{name: value}), *batches[1:]], 1)

    forge.__name__ = f"another_{name}"
    CASES.append((forge, reason))


field("producer_id", 8, "what is to become of the batch at 6 is another one, at 6")
field("producer_epoch", 1, "what is to become of the batch at 6 is another one, at 6")
field("base_sequence", 1, "what is to become of the batch at 6 is another one, at 6")
field("leader_epoch", 3, "what is to become of the batch at 6 is another one|has epoch")
field("base_offset", 7, "what is to become of the batch at 6 is another one|is not within")
field("transactional", True, "what is to become of the batch at 6 is another one")
field("max_timestamp", 1, "what is to become of the batch at 6 is another one")
field("codec", Codec.GZIP, "what is to become of the batch at 6 is another one")


@refused("what is to become of the batch at 1 is another one, at 2")
async def a_last_value_left_out(forged: Forged) -> None:
    await forged.put_log([one for one in await forged.batches() if one.base_offset != 1])


@refused("what is to become of the batch at 6 is another one, at 6")
async def a_last_value_of_a_batch_left_out(forged: Forged) -> None:
    batches = await forged.batches(1)
    await forged.put_log([rewritten(batches[0], records=[encoded(batches[0])[0][0]]), *batches[1:]], 1)


@refused("the batch at 5 comes from no source|what is to become of")
async def a_batch_of_its_own(forged: Forged) -> None:
    own = batch_of(b"own", keys=[b"own"], base_offset=5, leader_epoch=0)
    await forged.put_log([*[one for one in await forged.batches() if one.base_offset < 5], bytes(own)])


@refused("is not within|what is to become of the batch")
async def batches_in_another_order(forged: Forged) -> None:
    await forged.put_log(list(reversed(await forged.batches())))


@refused("was not made, and has changed 1")
async def changed_and_not_told(forged: Forged) -> None:
    forged.unchanged()


# -- winners and keys


def lie(winners: dict[int, int], reason: str, name: str) -> None:
    """The log is as the winners tell, and the keys are true."""

    async def forge(forged: Forged) -> None:
        forged.tier.worker.lies = winners
        forged.manifest = await forged.tier.worker.make(forged.order)

    forge.__name__ = name
    CASES.append((forge, reason))


NOT_THE_LAST = "the winners are not the last offsets of their keys"
lie({1: 2}, NOT_THE_LAST, "a_last_value_goes_for_another_key")
lie({1: 1 << 40}, NOT_THE_LAST, "a_last_value_goes_for_what_is_not_there")
lie({0: 0}, NOT_THE_LAST, "an_old_value_stays")
lie({3: 5}, NOT_THE_LAST, "an_old_value_goes_for_another_key")
lie({5: 7, 7: 7}, NOT_THE_LAST, "values_stay_beside_a_later_one")
lie({9: -1}, NOT_THE_LAST, "a_winner_before_the_log")


@refused("no winner is told for the record at")
async def a_winner_less(forged: Forged) -> None:
    await forged.put_winners((await forged.winners())[:-1])


@refused("no winner is told for the record at")
async def half_a_winner(forged: Forged) -> None:
    data = (await forged.read(forged.manifest.groups[0].winners))[:-3]
    made = await forged.tier.worker.stage(forged.order, "group-0.winners", data)
    first, second = forged.manifest.groups
    forged.manifest = forged.manifest._replace(groups=(first._replace(winners=made), second))


@refused(NOT_THE_LAST)
async def a_key_less(forged: Forged) -> None:
    await forged.put_entries((await forged.entries())[1:])


@refused(NOT_THE_LAST)
async def no_keys_at_all(forged: Forged) -> None:
    forged.manifest = forged.manifest._replace(keys=())


@refused("the keys are not sorted")
async def a_key_twice(forged: Forged) -> None:
    entries = await forged.entries()
    await forged.put_entries([entries[0], *entries[:-1]])


@refused("the keys are not sorted")
async def keys_unsorted(forged: Forged) -> None:
    await forged.put_entries(list(reversed(await forged.entries())))


@refused("287 bytes of keys are not whole entries")
async def keys_cut(forged: Forged) -> None:
    made = await forged.tier.worker.stage(forged.order, "keys-0.keys", b"".join(await forged.entries())[:-1])
    forged.manifest = forged.manifest._replace(keys=(made,))


@refused("the keys have the offset")
async def an_offset_out_of_range(forged: Forged) -> None:
    entries = await forged.entries()
    await forged.put_entries([*entries[:-1], b"\xff" * ENTRY.size])


@refused(NOT_THE_LAST)
async def a_lie_in_winners_and_keys(forged: Forged) -> None:
    """As if the last value of b were one of a, which has a later one."""
    forged.tier.worker.lies = {1: 2}
    forged.manifest = await forged.tier.worker.make(forged.order)
    secret = forged.order.secret
    entries = set(await forged.entries()) - {entry_of(key_hash(b"bbbb", secret), 1)}
    await forged.put_entries(sorted({*entries, entry_of(key_hash(b"aaaa", secret), 1)}))


@refused(NOT_THE_LAST)
async def an_old_value_under_another_hash(forged: Forged) -> None:
    """It stays beside the later one: a tombstone in place of that would not delete it."""
    forged.tier.worker.lies = {0: 0}
    forged.manifest = await forged.tier.worker.make(forged.order)
    secret = forged.order.secret
    entries = set(await forged.entries()) - {entry_of(key_hash(b"aaaa", secret), 0)}
    await forged.put_entries(sorted({*entries, entry_of(b"\x77" * 16, 0)}))


@pytest.mark.parametrize(("forge", "reason"), CASES, ids=[forge.__name__ for forge, _ in CASES])
def test_it_is_refused_with_a_sentence_and_nothing_of_it_is_published(forge: Forge, reason: str) -> None:
    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        forged = await Forged.of(tier)
        assert len(forged.order.groups) == 2, "as filled says"
        await forge(forged)
        await forged.publish()
        await tier.clean()
        (sentence,) = tier.refusals()
        assert re.search(reason, sentence), sentence
        assert tier.role.uncleanable is None and tier.staged() == []
        assert await tier.offsets() == KEPT and tier.cleaned_to() == (0, 12)
        assert len(started(tier)) == 2, "the leader's own"
        assert tier.bench.counted("remotecleanerrors") == 1

    on_ordered_tier(scenario, segment_bytes=500)


def test_what_is_not_forged_is_published() -> None:
    """Else the tests above would show nothing."""

    async def scenario(tier: OrderedTier) -> None:
        await filled(tier)
        forged = await Forged.of(tier)
        await forged.publish()
        await tier.clean()
        assert tier.refusals() == [] and tier.bench.counted("remotecleanerrors") == 0
        assert await tier.offsets() == KEPT and tier.cleaned_to() == (0, 12)

    on_ordered_tier(scenario, segment_bytes=500)
