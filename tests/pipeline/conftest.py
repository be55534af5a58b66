"""One Spark session for all tests, made when the first one asks for it; without Spark these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.made_tiers import MadeTier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from milena.pipeline.session import session

    if shutil.which("java") is None:
        pytest.skip("Spark needs a JDK")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.python.worker.faulthandler.enabled": "true"}
    made = session("local[2]", "tests", settings)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture
def made(tmp_path: Path) -> MadeTier:
    return MadeTier(tmp_path / "tier")
