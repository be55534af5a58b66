"""The tier of the compose file in an S3-compatible store: `docker compose --env-file docker/s3.env up`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.containers.engine import KCAT, ROOT, Container, Project, docker, needs
from tests.containers.work import bootstrap, leader, read, write
from tests.wire.command import milena
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
IMAGE = os.environ.get("MILENA_S3_IMAGE", "milena-kafka-s3")
STORE = os.environ.get("S3_IMAGE", "milena-moto")
TIERED = ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1", "file.delete.delay.ms=100")
LISTING = """
import fsspec, json, os
url, options = os.environ["KAFKA_RSM_CONFIG_URL"], json.loads(os.environ["KAFKA_RSM_CONFIG_OPTIONS"])
system, path = fsspec.core.url_to_fs(url, **options)
print(sum(name.endswith(".log") for name in system.find(path)))
"""


OVERRIDE = "\n".join(
    ["services:"]
    + [f"  broker-{n}: {{environment: {{KAFKA_LOG_RETENTION_CHECK_INTERVAL_MS: 1000}}}}" for n in (1, 2, 3)]
)


@pytest.fixture(scope="module")
def cluster(project: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    needs(IMAGE, STORE, KCAT)
    variables = {"MILENA_IMAGE": IMAGE, "S3_IMAGE": STORE}
    override = tmp_path_factory.mktemp("s3") / "override.yml"
    override.write_text(OVERRIDE)
    made = project("s3", settings=ROOT / "docker" / "s3.env", variables=variables, override=override)
    with made.running() as running:
        yield running


def objects(broker: Container) -> int:
    """Return the number of log files of segments in the bucket."""
    return int(broker.run("python", "-c", LISTING))


def test_records_are_in_the_bucket_and_read_from_there_after_a_broker_is_killed(cluster: Project) -> None:
    configs = [word for setting in TIERED for word in ("--config", setting)]
    milena("topic", "create", "old", "--partitions", "1", "--replicas", "3", *configs, "-b", bootstrap(cluster))
    write(cluster, "old", 4000, width=1000)
    killed = cluster.container(f"broker-{leader(cluster, 'old')}")
    wait_until(lambda: objects(killed) >= 3, "no three segments are in the bucket", 120)
    local = ("sh", "-c", "ls /var/lib/kafka/data/log/old-0/00000000000000000000.log 2>/dev/null; true")
    wait_until(lambda: not killed.run(*local), "the first segment is still local", 120)
    docker("kill", killed.id)
    inside = "broker-1:9092,broker-2:9092,broker-3:9092"
    found = cluster.client("-b", inside, "-C", "-t", "old", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%s\\n")
    assert found.split() == [str(number).zfill(1000) for number in range(4000)]
    docker("start", killed.id)
    killed.wait_healthy()
    assert len(read(cluster, "old")) == 4000
