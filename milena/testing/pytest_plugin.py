"""The pytest plugin: clusters of real processes on free ports, which end with the test or the session.

    def test_orders(milena_cluster):
        producer = Producer({"bootstrap.servers": milena_cluster.bootstrap})

``milena_cluster`` lives for the session; the ini option ``milena_brokers`` is its number of brokers (1), and
``milena_kafka_version`` the release of Kafka that it behaves like (the newest). With ``milena_reset = true``, or
``--milena-reset``, each test gets it like a new cluster (``LocalCluster.reset``), with lab commands.
``milena_start`` starts clusters for one test: ``milena_start(brokers=3, overrides={...}, topics=["t:6:1"])``.
The plugin imports only ``milena``: names like ``storage`` and ``runtime`` may belong to the user's project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import os
    from typing import Literal

    from milena.testing.local_cluster import LocalCluster

    ScopeName = Literal["session", "package", "module", "class", "function"]
    StartCluster = Callable[..., LocalCluster]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("milena_brokers", "brokers of the fixture milena_cluster", default="1")
    parser.addini("milena_kafka_version", "the release of Kafka that milena_cluster behaves like", default="")
    parser.addini("milena_reset", "reset milena_cluster before each test", type="bool", default=False)
    parser.addoption("--milena-reset", action="store_true", help="reset milena_cluster before each test")


def is_reset(config: pytest.Config) -> bool:
    """Whether ``milena_cluster`` is reset before each test."""
    return bool(config.getoption("milena_reset") or config.getini("milena_reset"))


def scope_of_cluster(fixture_name: str, config: pytest.Config) -> ScopeName:
    """The scope of ``milena_cluster``; the cluster's processes live for the session in any case."""
    return "function" if is_reset(config) else "session"


@pytest.fixture(scope="session")
def milena_session_cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[LocalCluster]:
    """The cluster behind ``milena_cluster``."""
    from milena.testing.local_cluster import LocalCluster

    brokers = str(pytestconfig.getini("milena_brokers"))
    if not brokers.isdecimal() or not int(brokers):
        raise pytest.UsageError(f"milena_brokers = {brokers}: not a number of at least 1")
    version = str(pytestconfig.getini("milena_kafka_version"))
    options = ("--kafka-version", version) if version else ()
    with LocalCluster.start(
        tmp_path_factory.mktemp("milena"), brokers=int(brokers), options=options, lab=is_reset(pytestconfig)
    ) as cluster:
        yield cluster


@pytest.fixture(scope=scope_of_cluster)
def milena_cluster(milena_session_cluster: LocalCluster, pytestconfig: pytest.Config) -> LocalCluster:
    """A running cluster. Without ``milena_reset`` all tests share its state: use different topics in each test."""
    if is_reset(pytestconfig):
        milena_session_cluster.reset()
    return milena_session_cluster


@pytest.fixture
def milena_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCluster]:
    """Starts clusters for one test: ``LocalCluster.start`` without the directory."""
    from milena.testing.local_cluster import LocalCluster

    started: list[LocalCluster] = []

    def start(directory: str | os.PathLike[str] | None = None, **arguments: Any) -> LocalCluster:  # noqa: ANN401 - the arguments of LocalCluster.start, passed on
        cluster = LocalCluster.start(directory or tmp_path_factory.mktemp("milena"), **arguments)
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.stop()
