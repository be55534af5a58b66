"""The pytest plugin: clusters of real processes on free ports, which end with the test or the session.

    def test_orders(milena_cluster):
        producer = Producer({"bootstrap.servers": milena_cluster.bootstrap})

``milena_cluster`` lives for the session; the ini option ``milena_brokers`` is its number of brokers (1), and
``milena_kafka_version`` the release of Kafka that it behaves like (the newest). With ``milena_reset = true``, or
``--milena-reset``, each test gets it like a new cluster (``LocalCluster.reset``), with lab commands; ``milena_pool``
is the number of clusters that take turns (1). With pytest-xdist each worker has its own.
``milena_start`` starts clusters for one test: ``milena_start(brokers=3, overrides={...}, topics=["t:6:1"])``.
``milena_snapshot`` prepares a state once per session, which each test can restore or fork.
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
    from milena.testing.warm_clusters import PreparedState, WarmClusters

    ScopeName = Literal["session", "package", "module", "class", "function"]
    StartCluster = Callable[..., LocalCluster]
    Prepare = Callable[..., PreparedState]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("milena_brokers", "brokers of the fixture milena_cluster", default="1")
    parser.addini("milena_kafka_version", "the release of Kafka that milena_cluster behaves like", default="")
    parser.addini("milena_reset", "reset milena_cluster before each test", type="bool", default=False)
    parser.addini("milena_pool", "clusters of each process that take turns with milena_reset", default="1")
    parser.addoption("--milena-reset", action="store_true", help="reset milena_cluster before each test")


def is_reset(config: pytest.Config) -> bool:
    """Whether ``milena_cluster`` is reset before each test."""
    return bool(config.getoption("milena_reset") or config.getini("milena_reset"))


def scope_of_cluster(fixture_name: str, config: pytest.Config) -> ScopeName:
    """The scope of ``milena_cluster``; the cluster's processes live for the session in any case."""
    return "function" if is_reset(config) else "session"


def number_of(config: pytest.Config, option: str) -> int:
    """Return the value of an ini option. Raises UsageError if it is not a number of at least 1."""
    text = str(config.getini(option))
    if not text.isdecimal() or not int(text):
        raise pytest.UsageError(f"{option} = {text}: not a number of at least 1")
    return int(text)


@pytest.fixture(scope="session")
def milena_clusters(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[WarmClusters]:
    """The clusters behind ``milena_cluster``; one, unless it is reset and ``milena_pool`` is set."""
    from milena.testing.local_cluster import LocalCluster
    from milena.testing.warm_clusters import WarmClusters

    brokers = number_of(pytestconfig, "milena_brokers")
    version = str(pytestconfig.getini("milena_kafka_version"))
    options = ("--kafka-version", version) if version else ()
    resets = is_reset(pytestconfig)

    def start() -> LocalCluster:
        return LocalCluster.start(tmp_path_factory.mktemp("milena"), brokers=brokers, options=options, lab=resets)

    clusters = WarmClusters(start, number_of(pytestconfig, "milena_pool") if resets else 1)
    yield clusters
    clusters.close()


@pytest.fixture(scope=scope_of_cluster)
def milena_cluster(milena_clusters: WarmClusters, pytestconfig: pytest.Config) -> Iterator[LocalCluster]:
    """A running cluster. Without ``milena_reset`` all tests share its state: use different topics in each test."""
    cluster = milena_clusters.take()
    yield cluster
    if is_reset(pytestconfig):
        milena_clusters.put_back(cluster)
    else:
        cluster.stop()


@pytest.fixture(scope="session")
def milena_snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepare]:
    """Prepares a state once, for several tests: ``milena_snapshot(prepare, **options)`` starts a cluster with the
    options of ``LocalCluster.start``, calls ``prepare`` with it, and returns the ``PreparedState``."""
    from milena.testing.local_cluster import LocalCluster
    from milena.testing.warm_clusters import PreparedState

    states: list[PreparedState] = []

    def prepared(prepare: Callable[[LocalCluster], object], **options: Any) -> PreparedState:  # noqa: ANN401 - the arguments of LocalCluster.start, passed on
        folder = tmp_path_factory.mktemp("milena")
        cluster = LocalCluster.start(folder / "cluster", **{"lab": True, **options})
        try:
            prepare(cluster)
            states.append(PreparedState(cluster, str(folder)))
        except BaseException:
            cluster.stop()
            raise
        return states[-1]

    yield prepared
    for state in states:
        state.close()


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
