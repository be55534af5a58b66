"""The difference of two images equals the delta of the records between them; and the replay of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.node.metadata.image import Delta, MetadataImage
from milena.node.metadata.loader import STEP_BYTES, MetadataLoader, decoded, difference, replay_batch, replay_records
from milena.node.metadata.replay import Replayer, apply
from milena.protocol import metadata_records as r
from milena.protocol.cooperative import ELEMENTS_PER_YIELD, run_now
from milena.protocol.records.batch import BatchView
from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.node.quorum import topic

NAMES = ("a", "b", "c")

Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "partition", "config", "feature"]),
        st.sampled_from(NAMES),
        st.integers(1, 4),
    )
)


def replay(image: MetadataImage, delta: Delta, steps: list[Step], first_id: int) -> None:
    """Apply what is possible of ``steps``; topic ids count on from ``first_id``."""
    for number, (kind, name, value) in enumerate(steps):
        known = image.topics.get(name)
        match kind:
            case "create" if known is None:
                apply(image, delta, topic(name, first_id + number))
            case "delete" if known is not None:
                apply(image, delta, r.RemoveTopicRecord(topic_id=known.id))
            case "partition" if known is not None:
                record = r.PartitionRecord(partition_id=value, topic_id=known.id, replicas=(1,), isr=(1,), leader=1)
                apply(image, delta, record)
            case "config":
                apply(image, delta, r.ConfigRecord(resource_type=4, resource_name=name, name="k", value=str(value)))
            case "feature":
                apply(image, delta, r.FeatureLevelRecord(name=name, feature_level=value))
            case _:
                pass


@given(STEPS, STEPS)
def test_the_difference_is_within_what_the_records_said_and_covers_every_change(
    before: list[Step], after: list[Step]
) -> None:
    old, new, delta = MetadataImage(), MetadataImage(), Delta()
    replay(old, Delta(), before, 1)
    replay(new, Delta(), before, 1)
    replay(new, delta, after, 1000)
    found = difference(old, new)
    assert {t.id for t in found.deleted_topics} == {t.id for t in old.topics.values()} - set(new.topics_by_id)
    assert found.features <= delta.features and found.configs <= delta.configs
    assert found.topics.keys() <= delta.topics.keys()
    for name, topic_image in new.topics.items():
        known = old.topics_by_id.get(topic_image.id)
        changed = {n for n, p in topic_image.partitions.items() if known is None or known.partitions.get(n) != p}
        assert found.topics.get(name, set()) == changed
        assert (name in found.topics) == (known is None or bool(changed))


def test_equal_images_have_no_difference() -> None:
    image = MetadataImage()
    replay(image, Delta(), [("create", "a", 1), ("partition", "a", 1), ("config", "b", 2)], 1)
    assert not difference(image, image)


def batch_of(*values: bytes) -> BatchView:
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    return BatchView(memoryview(build_batch(records, base_timestamp=7, leader_epoch=LeaderEpoch(1))))


def test_a_large_batch_is_decoded_in_steps_and_then_replayed_at_once() -> None:
    batch = batch_of(*(r.encode_record(topic(f"t{number}", number + 1000)) for number in range(1_200)))
    image, yields, work = MetadataImage(), 0, decoded(batch)
    while True:
        try:
            next(work)
        except StopIteration as done:
            records = done.value
            break
        yields += 1
        assert not image.topics
    assert yields == 1_200 // ELEMENTS_PER_YIELD
    replay_records(Replayer(image), batch, records)
    assert (len(image.topics), image.offset) == (1_200, 1_199)


def test_at_each_yield_all_changes_of_the_image_are_published() -> None:
    """Else a request in between sees a later offset of the image than its subscribers have applied."""
    first = build_batch([Record(0, 0, None, r.encode_record(topic("first", 1)))], leader_epoch=LeaderEpoch(1))
    records = [Record(number, 0, None, r.encode_record(topic(f"t{number}", number + 1000))) for number in range(1_200)]
    data = first + build_batch(records, base_offset=Offset(1), leader_epoch=LeaderEpoch(1))
    assert len(data) <= STEP_BYTES
    log: Any = SimpleNamespace(read_bytes=lambda *_, **__: memoryview(data))
    nothing: Any = None
    loader, published, yields = MetadataLoader(log, nothing, nothing), set[str](), 0
    loader.subscribe(lambda _, delta: published.update(delta.topics))
    loader.set_high_watermark(Offset(1_201))
    for _ in loader.replay_some():
        yields += 1
        assert set(loader.image.topics) == published
    assert yields == 1_200 // ELEMENTS_PER_YIELD
    assert set(loader.image.topics) == published and len(published) == 1_201


def test_of_a_batch_with_an_undecodable_record_the_earlier_records_are_replayed() -> None:
    batch = batch_of(r.encode_record(topic("a", 1)), b"\xff", r.encode_record(topic("b", 2)))
    image, skipped = MetadataImage(), list[tuple[str, int]]()
    records = run_now(decoded(batch))
    replay_records(Replayer(image), batch, records, lambda error, at: skipped.append((type(error).__name__, at)))
    assert (list(image.topics), image.offset) == (["a"], 2)
    assert [at for _, at in skipped] == [0]
    assert records[1] is not None
    with pytest.raises(type(records[1])):
        replay_batch(Replayer(MetadataImage()), batch)
