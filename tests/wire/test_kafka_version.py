"""`milena up --kafka-version`: nodes that behave like an earlier release, until a start with a later one."""

from __future__ import annotations

from pathlib import Path

from milena.protocol.schemas.api_versions import ApiVersionsResponse
from milena.protocol.schemas.registry import Role, advertised
from milena.releases import NEWEST
from milena.testing.local_cluster import LocalCluster
from tests.wire.command import milena, refused
from tests.wire.listed_versions import listed


def described(cluster: LocalCluster) -> tuple[ApiVersionsResponse, ApiVersionsResponse]:
    return listed(cluster.bootstrap), listed(cluster.controller.listeners["CONTROLLER"])


def test_a_cluster_behaves_like_a_release_until_it_is_started_with_another(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, options=["--kafka-version", "4.1.2"]) as cluster:
        broker, controller = described(cluster)
        assert (broker.keys, controller.keys) == (advertised(Role.BROKER, "4.1"), advertised(Role.CONTROLLER, "4.1"))
        assert broker.supported["metadata.version"] == controller.supported["metadata.version"] == (7, 27)
        assert broker.finalized == {"metadata.version": 27, "transaction.version": 2}
        unknown = refused("topic", "create", "t", "--config", "remote.copy.lag.ms=5", "-b", cluster.bootstrap)
        assert "Unknown topic config name: remote.copy.lag.ms" in unknown
        milena("topic", "create", "t", "-b", cluster.bootstrap)
    with LocalCluster.start(tmp_path) as cluster:
        assert "the nodes behave like Kafka 4.1" in (tmp_path / "up.stderr").read_text()
        assert described(cluster)[0].keys == advertised(Role.BROKER, "4.1")
    with LocalCluster.start(tmp_path, options=["--kafka-version", NEWEST]) as cluster:
        broker, controller = described(cluster)
        assert (broker.keys, controller.keys) == (advertised(Role.BROKER), advertised(Role.CONTROLLER))
        assert broker.finalized == {"metadata.version": 27, "transaction.version": 2}
        milena("topic", "alter", "t", "--config", "remote.copy.lag.ms=5", "-b", cluster.bootstrap)


def test_a_release_that_is_not_known_is_a_usage_error(tmp_path: Path) -> None:
    said = refused("up", "--dir", str(tmp_path), "--kafka-version", "3.9", code=2)
    assert said.startswith("--kafka-version 3.9: the releases are 4.0, 4.1, 4.2, 4.3, 4.4")


def test_a_node_of_an_earlier_release_cannot_use_a_newer_cluster(tmp_path: Path) -> None:
    """A broker is refused by the controller, and a controller refuses its log; both as in Kafka."""
    with LocalCluster.start(tmp_path) as cluster:
        cluster.stop_node(1)
        said = milena("node", f"{tmp_path}/broker-1/server.properties", "--override", "kafka.version=4.3", code=1)
        reason = "UNSUPPORTED_VERSION (kafka.version is 4.3, so this broker supports metadata.version 7 to 30)"
        assert reason in said.err
    refusal = refused("up", "--dir", str(tmp_path), "--kafka-version", "4.3")
    assert "metadata.version is 33 (4.4-IV2), and this node supports 7 to 30 with kafka.version=4.3" in refusal
