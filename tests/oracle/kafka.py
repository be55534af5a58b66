"""Apache Kafka 4.4.0 as test oracle: its jars, and its tools as processes.

KAFKA_LIBS names a folder that has the jars already. Otherwise Maven copies them into the user's cache once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

VERSION = "4.4.0"
TEST_VERSION = "4.3.1"
"""The version of the jars with Kafka's test classes."""
POM = Path(__file__).with_name("pom.xml")
OLDER = "older"
"""The folder of the clients of ``TEST_VERSION``, last on the class path: its test classes need classes that have moved
since."""
NEEDED = (
    f"kafka-tools-{VERSION}.jar",
    f"kafka-storage-{TEST_VERSION}-test.jar",
    f"kafka-streams-{VERSION}.jar",
    f"{OLDER}/kafka-clients-{TEST_VERSION}.jar",
)
"""Jars that must be present. If they are, the other jars are assumed to be present too."""
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
"""JVM options for short runs: the compiler and the garbage collector that start fastest."""


class NoKafka(Exception):
    """Kafka cannot be run on this machine; the message is the reason."""


@cache
def jars(version: str = VERSION) -> Path:
    """Return the folder with the jars of a version of Kafka. Raises NoKafka with the reason."""
    if shutil.which("java") is None:
        raise NoKafka("java is not installed")
    named = os.environ.get("KAFKA_LIBS") if version == VERSION else None
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = f"kafka-{VERSION}-tests-older" if version == VERSION else f"kafka-{version}"
    folder = Path(named) if named else cache_home / "milena" / name
    needed = NEEDED if version == VERSION else (f"kafka_2.13-{version}.jar",)
    missing = [jar for jar in needed if not (folder / jar).exists()]
    if not missing:
        return folder
    if named:
        raise NoKafka(f"KAFKA_LIBS={named} has no {missing[0]}")
    if shutil.which("mvn") is None:
        raise NoKafka("mvn is not installed, and KAFKA_LIBS names no folder with Kafka's jars")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        made = Path(unfinished, "jars")
        if version == VERSION:
            _maven("-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={made}")
            older = f"-Dartifact=org.apache.kafka:kafka-clients:{TEST_VERSION}"
            _maven("dependency:copy", older, f"-DoutputDirectory={made / OLDER}")
        else:
            chosen = (f"-Dkafka.version={version}", "-DexcludeGroupIds=org.rocksdb", f"-DoutputDirectory={made}")
            _maven("-f", str(POM), "dependency:copy-dependencies", *chosen)
        try:
            made.rename(folder)
        except OSError:  # another process has created the folder meanwhile
            if not all((folder / jar).exists() for jar in needed):
                raise
    return folder


def _maven(*arguments: str) -> None:
    """Run Maven. Raises NoKafka if it fails."""
    done = subprocess.run(["mvn", "-q", "-B", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoKafka(f"Maven did not answer: {done.stdout.strip()[-300:]}")


def java(
    main: str, *arguments: str, options: Sequence[str] = QUICK, heap: str = "256m", version: str = VERSION
) -> list[str]:
    """Return the command line that runs a main class of a version of Kafka. Raises NoKafka."""
    folder = jars(version)
    path = f"{folder}/*:{folder}/{OLDER}/*" if version == VERSION else f"{folder}/*"
    return ["java", f"-Xmx{heap}", *options, "-cp", path, main, *arguments]


def tool(main: str, *arguments: str, timeout: float = 120, check: bool = True, version: str = VERSION) -> str:
    """Run a tool and return its standard output. Fails with all its output if its exit code is not 0."""
    command = java(main, *arguments, version=version)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or done.returncode == 0, f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
