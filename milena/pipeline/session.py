"""Creates Spark sessions."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from milena import install_hint
from milena.pipeline import register
from milena.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.memory": "1g",
    # Python workers send their data to the JVM through a Unix socket, which is faster than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(master: str = "local[*]", name: str = "milena", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with the format ``milena``. ``settings``: settings of Spark that override DEFAULTS.

    Tasks run with this process's interpreter, unless PYSPARK_PYTHON names another. Raises PipelineError if Spark or a
    JDK is missing.
    """
    check_installed()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def check_installed() -> None:
    """Check that Spark and a JDK are installed. Raises PipelineError."""
    check_jdk()
    if find_spec("pyspark") is None:
        raise PipelineError(f"Spark is not installed: pip install {install_hint('spark')}")


def check_jdk() -> None:
    """Check that Java is installed where Spark looks for it. Raises PipelineError."""
    home = os.environ.get("JAVA_HOME")
    if home is not None and not os.path.exists(os.path.join(home, "bin", "java")):
        raise PipelineError(f"JAVA_HOME={home} has no bin/java: Spark needs a JDK 17 or 21, for example openjdk-17-jre")
    if home is None and shutil.which("java") is None:
        raise PipelineError("Spark needs a JDK, and there is none: install JDK 17 or 21, for example openjdk-17-jre")
