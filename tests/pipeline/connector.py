"""The jars of Spark's own Kafka connector, for ``spark.jars``.

SPARK_KAFKA_JARS names a folder that has the jars already; otherwise Maven copies them into the user's cache once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

POM = Path(__file__).with_name("connector.xml")
PARTS = 4


class NoConnector(Exception):
    """The jars are not available on this machine; the message is the reason."""


@cache
def connector_jars() -> str:
    """Return the jars' paths, separated by commas for ``spark.jars``. Raises NoConnector with the reason."""
    named = os.environ.get("SPARK_KAFKA_JARS")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(named) if named else home / "milena" / "spark-kafka-4.2.0"
    if not folder.is_dir():
        if named:
            raise NoConnector(f"SPARK_KAFKA_JARS={named} is no folder")
        _copy(folder)
    found = sorted(map(str, folder.glob("*.jar")))
    if len(found) < PARTS:
        raise NoConnector(f"{folder} has {len(found)} jars of {PARTS}")
    return ",".join(found)


@cache
def jars_of(name: str) -> str:
    """Return the jars that the POM with this name beside this module lists. Raises NoConnector with the reason."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "milena" / f"spark-{name}-4.2.0"
    if not folder.is_dir():
        _copy(folder, POM.with_name(f"{name}.xml"))
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def _copy(folder: Path, pom: Path = POM) -> None:
    if shutil.which("mvn") is None:
        raise NoConnector("mvn is not installed, and SPARK_KAFKA_JARS names no folder with the connector's jars")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        goal = ["dependency:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={unfinished}/jars"]
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoConnector(f"Maven did not answer: {done.stdout.strip()[-300:]}")
        Path(unfinished, "jars").rename(folder)
