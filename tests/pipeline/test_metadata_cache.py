"""A plan that continues from the last plan of its process finds the same segments as a plan in a new process."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from milena.pipeline import catalogue, metadata_cache
from milena.pipeline.errors import PipelineError
from milena.pipeline.metadata_cache import PlanCache
from milena.pipeline.planning import resolved
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.metadata.serialization import serialize
from milena.tiered.offline.metadata_reader import MetadataReader
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState, RemoteLogSegmentUpdate
from tests.pipeline.in_process import offsets
from tests.pipeline.made_tiers import MadeTier, run


@pytest.fixture(autouse=True)
def plan_cache(monkeypatch: pytest.MonkeyPatch) -> PlanCache:
    """A plan cache that only this test uses."""
    own = PlanCache()
    monkeypatch.setattr(catalogue, "PLAN_CACHE", own)
    return own


@pytest.fixture
def resolutions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the numbers of the partitions whose segments were resolved again."""
    found: list[int] = []

    def noted(*given: object) -> object:
        found.append(given[0].partition)  # type: ignore[attr-defined]
        return resolved(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(metadata_cache, "resolved", noted)
    return found


def test_a_plan_continues_with_new_metadata_events(made: MadeTier, tmp_path: Path, resolutions: list[int]) -> None:
    folder = tmp_path / "data"
    made.add(run(0, 100))
    made.add(run(0, 30), number=1)

    def found() -> list[int]:
        resolutions.clear()
        return sorted(offsets(tier=made.folder, metadata=made.metadata(folder)))

    assert found() == sorted([*range(100), *range(30)]) and sorted(resolutions) == [0, 1]
    assert found() == sorted([*range(100), *range(30)]) and resolutions == []
    second = made.add(run(100, 150))
    assert found() == sorted([*range(150), *range(30)]) and resolutions == [0]
    states = RemoteLogSegmentState
    for state in (states.DELETE_SEGMENT_STARTED, states.DELETE_SEGMENT_FINISHED):
        made.events.append(RemoteLogSegmentUpdate(second.segment_id, second.broker_id, 1, None, state))
    assert found() == sorted([*range(100), *range(30)]) and resolutions == [0]
    made.add(run(0, 5), number=2)
    assert found() == sorted([*range(100), *range(30), *range(5)]) and resolutions == [2]


def test_other_topics_need_another_plan(made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 10))
    made.add(run(0, 20), topic="clicks")
    places = {"tier": made.folder, "metadata": made.metadata(tmp_path / "data")}
    for _ in range(2):
        assert len(offsets(**places)) == 10
        assert len(offsets(**places, subscribe="clicks")) == 20
        assert len(offsets(**places, subscribe="", subscribePattern=".*")) == 30
        assert len(offsets(**places, subscribe="", assign='{"clicks": [0]}')) == 20
    with pytest.raises(PipelineError, match="there is no topic other; there are clicks, orders"):
        offsets(**places, subscribe="other")


def test_another_tier_needs_another_plan(made: MadeTier, tmp_path: Path) -> None:
    """A copy of the tier that lacks files has fewer leader epochs."""
    made.add(run(0, 10))
    made.add(run(10, 20, epoch=2), epochs={0: 0, 1: 5, 2: 10})
    more = {"metadata": made.metadata(tmp_path / "data"), "failOnDataLoss": False}
    copy = Path(shutil.copytree(made.folder, tmp_path / "copy"))
    for path in list(copy.rglob("*.leader_epoch_checkpoint")):
        path.unlink()
    assert offsets(tier=copy, **more) == [*range(20)]
    assert offsets(tier=made.folder, **more) == [*range(5), *range(10, 20)]


def test_nothing_is_cached_after_an_error(made: MadeTier, tmp_path: Path, plan_cache: PlanCache) -> None:
    made.add(run(0, 10))
    folder = tmp_path / "data"
    assert len(offsets(tier=made.folder, metadata=made.metadata(folder))) == 10
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"partition 0 of the metadata topic in .* cannot be read"):
            offsets(tier=made.folder, metadata=made.metadata(folder, values=[b"\x01\x09\x00"]))
        assert plan_cache._held is None
    assert len(offsets(tier=made.folder, metadata=made.metadata(folder))) == 10


def test_damaged_metadata_of_other_topics_do_not_fail_a_plan(made: MadeTier, tmp_path: Path) -> None:
    """From events of other topics, a plan only reads topic and format version."""
    made.add(run(0, 10))
    other = made.add(run(0, 10), topic="other")
    value = serialize(other)
    places = {"tier": made.folder, "metadata": made.metadata(tmp_path / "data", values=[value[:-1]])}
    assert len(offsets(**places)) == 10
    with pytest.raises(PipelineError, match="cannot be read"):
        offsets(**places, subscribe="other")


def test_two_concurrent_plans_share_no_reader() -> None:
    plan_cache = PlanCache()
    first = plan_cache.take("a", partial(MetadataReader, EventDecoder))
    second = plan_cache.take("a", partial(MetadataReader, EventDecoder))
    assert first is not second
    plan_cache.put("a", first)
    plan_cache.put("a", second)
    assert plan_cache.take("a", partial(MetadataReader, EventDecoder)) is second
    plan_cache.put("a", second)
    assert plan_cache.take("b", partial(MetadataReader, EventDecoder)) is not second
    assert plan_cache.take("a", partial(MetadataReader, EventDecoder)) is not second
