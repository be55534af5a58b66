"""One Spark session for all tests, created when the first test requests it. Without Spark these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.connector import NoConnector, connector_jars
from tests.pipeline.made_tiers import MadeTier
from tests.pipeline.standalone import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

collect_ignore_glob = [] if find_spec("pyspark") and find_spec("pyarrow") else ["test_*"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from milena.pipeline.session import session

    if shutil.which("java") is None:
        pytest.skip("Spark needs a JDK")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    try:
        settings["spark.jars"] = connector_jars()
    except NoConnector as reason:
        print(f"without Spark's own connector: {reason}")
    made = session("local[2]", "tests", settings)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    gateway = made.sparkContext._gateway
    made.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    gateway.proc.wait(60)


@pytest.fixture(scope="session")
def _standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs a JDK")
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def standalone(_standalone: Standalone) -> Standalone:
    """A Spark cluster with two workers."""
    _standalone.bring(2)
    return _standalone


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the time limit of these tests, because a JVM on a busy machine is slow."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture
def made(tmp_path: Path) -> MadeTier:
    return MadeTier(tmp_path / "tier")
