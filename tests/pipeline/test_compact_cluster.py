"""The job ``compact`` on a Spark cluster, for the leader of a real cluster: of two workers one is killed in the middle;
and the tier is in a store like S3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pipeline.cleaned import ISSUED, KEYS, PUBLISHED, REFUSED, TIERED, UPDATES, Cleaned, running
from tests.pipeline.held_jobs import Job
from tests.pipeline.s3 import URL, s3
from tests.pipeline.standalone import Standalone
from tests.wire.admin import alter_topic, create_topic
from tests.wire.tiers import logs, settings, settings_of_url
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

JOB = """
from milena.pipeline.jobs.compact import job

class HeldTask:
    # Has written a group when it stands still, and has not told so.
    def __init__(self, *given):
        self.task = GroupTask(*given)

    def __call__(self, batches):
        yield from held(self.task(batches))

GroupTask, job.GroupTask = job.GroupTask, HeldTask
master, tier, options = sys.argv[2:]
spark = on_cluster(master, "compact")
found = job.compact(spark, tier, options, told=lambda sentence: print(sentence, file=sys.stderr))
print(json.dumps([found.orders, found.taken_back, found.segments]))
spark.stop()
"""


@contextmanager
def ordered(folder: Path, store: Mapping[str, str]) -> Iterator[Cleaned]:
    """A cluster whose leader has issued one order, of all that is closed."""
    with running(folder / "cluster", store) as cluster:
        create_topic(cluster.bootstrap, "t", 1, config=TIERED)
        cleaned = Cleaned(cluster)
        cleaned.write(UPDATES)
        data = Path(cluster.brokers[0].log_dirs[0])
        wait_until(lambda: len(logs(data, "t-0")) == 1, "all that is closed is in the tier alone", 60)
        alter_topic(cluster.bootstrap, "t", {"cleanup.policy": "compact"})
        wait_until(lambda: bool(cleaned.events(ISSUED)), "a work order", 60)
        yield cleaned


def check_published(cleaned: Cleaned, told: str) -> None:
    """The leader has published what the job has made of the one order, and a consumer reads what it should."""
    (issued,) = cleaned.events(ISSUED)
    assert json.loads(told) == [1, 0, issued["segments"]] and int(str(issued["segments"])) > 2
    wait_until(lambda: bool(cleaned.events(PUBLISHED) or cleaned.events(REFUSED)), "the result to be published", 60)
    assert cleaned.events(REFUSED) == [] and cleaned.cleaned_to() == issued["end"]
    count, found = cleaned.read()
    assert found == cleaned.last and KEYS <= count < KEYS * UPDATES / 2


def test_a_worker_is_killed_that_has_written_a_group_and_the_leader_publishes_the_result(
    standalone: Standalone, tmp_path: Path
) -> None:
    tier = tmp_path / "tier"
    with (
        ordered(tmp_path, settings(tier)) as cleaned,
        Job(tmp_path, JOB, standalone.master, str(tier), "") as job,
    ):
        job.wait_until_held(2)
        standalone.kill(1)
        told, errors = job.let_go()
        assert "Lost executor" in errors
        check_published(cleaned, told)


def test_the_job_and_the_leader_reach_the_tier_in_a_store_like_s3(standalone: Standalone, tmp_path: Path) -> None:
    with (
        s3(tmp_path) as options,
        ordered(tmp_path, settings_of_url(URL, options)) as cleaned,
        Job(tmp_path, JOB, standalone.master, URL, options) as job,
    ):
        told, _ = job.let_go()
        check_published(cleaned, told)
