"""Published dashboards find their metrics at /metrics, under the names of the rules that they were made for."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from milena.node.metric_names import SETS, names_of
from milena.testing.local_cluster import LIMIT
from milena.up.ports import free
from tests.wire.command import milena, node
from tests.wire.properties import combined, write

ELSEWHERE: Final = {
    "jvm_": "the JVM",
    "container_": "Kubernetes",
    "kubelet_": "Kubernetes",
    "zookeeper_": "ZooKeeper",
    "kafka_server_sessionexpirelistener_": "Kafka's client of ZooKeeper, which Kafka 4 does not have",
    "kafka_server_zookeeperclientmetrics_": "Kafka's client of ZooKeeper, which Kafka 4 does not have",
}
"""What serves metrics with these prefixes, if not Kafka 4."""
ABSENT: Final = {
    "kafka_log_log_tiersize",
    "kafka_server_replicamanager_straypartitionscount",
    "kafka_server_replicamanager_straypartitionsmisclassifiedcount",
    "kafka_server_replicamanager_straypartitionstotalsize",
    "kafka_tier_tasks_archive_tierarchiver_bytespersec",
    "kafka_tier_tasks_archive_tierarchiver_retriespersec",
    "kafka_tier_tasks_archive_tierarchiver_totallag",
    "kafka_tier_tasks_tiertasks_numpartitionsinerror",
}
"""Metrics of Confluent Server, which neither Apache Kafka nor Milena has."""
SERVED: Final = 0.85
"""The least share of the metrics of a dashboard that must be served."""
OWN_DASHBOARD: Final = Path(__file__).parents[2] / "docs/dashboards/milena.json"
SAMPLE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
LABEL: Final = re.compile(r'([A-Za-z_]+)="([^"]*)"')


@dataclass(frozen=True)
class Dashboard:
    """One dashboard."""

    id: str
    source: str
    """The URL of the file."""
    about: str
    names: str
    """The set of names that it queries."""
    metrics: dict[str, list[str]]
    """The labels that are queried, by metric."""

    @property
    def of_kafka(self) -> dict[str, list[str]]:
        return {name: labels for name, labels in self.metrics.items() if not name.startswith(tuple(ELSEWHERE))}


@dataclass(frozen=True)
class Sample:
    """One line of /metrics."""

    name: str
    labels: dict[str, str]
    value: float


DASHBOARDS: Final = [
    Dashboard(**entry) for entry in yaml.safe_load(Path(__file__).with_name("dashboards.yaml").read_text())
]


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The control port of a combined node, after records were written and read, and a request has failed."""
    folder, port = tmp_path_factory.mktemp("shown"), free("127.0.0.1", 1)[0]
    with node(folder, write(folder, combined(folder)), "--control", str(port)) as running:
        milena("topic", "create", "t", "--partitions", "2", "-b", running.address)
        milena("topic", "create", "t", "-b", running.address, code=1)
        milena("produce", "t", "-b", running.address, stdin="record\n" * 10)
        milena("consume", "t", "--from-beginning", "--exit", "-b", running.address)
        yield port


def served(control: int, names: str) -> list[Sample]:
    found = []
    with urllib.request.urlopen(f"http://127.0.0.1:{control}/metrics?names={names}", timeout=LIMIT) as page:
        text = page.read().decode()
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            found.append(Sample(match[1], dict(LABEL.findall(match[2] or "")), float(match[3])))
    return found


def test_the_dashboards_are_of_several_projects_and_all_sets_of_names() -> None:
    assert len({dashboard.source for dashboard in DASHBOARDS}) == len(DASHBOARDS) >= 8
    assert len({dashboard.source.split("/")[3] for dashboard in DASHBOARDS}) == 3
    assert {dashboard.names for dashboard in DASHBOARDS} == set(SETS)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[dashboard.id for dashboard in DASHBOARDS])
def test_a_dashboard_finds_its_metrics_and_their_labels(control: int, dashboard: Dashboard) -> None:
    samples = served(control, dashboard.names)
    missing = dashboard.of_kafka.keys() - {sample.name for sample in samples}
    assert missing <= ABSENT
    assert len(missing) <= (1 - SERVED) * len(dashboard.of_kafka)
    for name in dashboard.of_kafka.keys() - missing:
        wanted = set(dashboard.metrics[name])
        assert any(wanted <= sample.labels.keys() for sample in samples if sample.name == name), (name, wanted)


def test_the_values_are_those_of_the_node(control: int) -> None:
    samples = served(control, "confluent")

    def value(name: str, **labels: str) -> float:
        (found,) = [one.value for one in samples if one.name == name and one.labels.items() >= labels.items()]
        return found

    times = "kafka_network_requestmetrics_"
    median = {
        phase: value(f"{times}{phase}timems", request="Produce", quantile="0.50")
        for phase in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")
    }
    assert 0 < median["local"] <= median["total"] and 0 < median["responsesend"] <= median["total"]
    assert value(f"{times}errorspersec", request="CreateTopics", error="TOPIC_ALREADY_EXISTS") >= 1
    for idle in (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
    ):
        assert 0 < value(idle) < 1
    assert value("kafka_server_raft_metrics_current_leader") == 1
    assert 0 < value("kafka_server_raft_metrics_high_watermark") <= value("kafka_server_raft_metrics_log_end_offset")
    assert value("kafka_server_raft_metrics_commit_latency_avg") > 0
    assert value("kafka_server_raft_metrics_append_records_rate") > 0
    assert value("kafka_controller_kafkacontroller_globalpartitioncount") == 2
    assert value("kafka_server_brokertopicmetrics_messagesinpersec", topic="t") == 10


def test_the_dashboard_of_this_project_finds_its_metrics(control: int) -> None:
    names = set(re.findall(r"\b(?:kafka|milena|process)_[a-z_]+", OWN_DASHBOARD.read_text()))
    missing = names - {sample.name for sample in served(control, "reporter")}
    assert all("_brokertopicmetrics_remote" in name for name in missing), "this node has no tier"
    assert missing <= names_of("reporter").shown.keys()
    assert len(names) >= 50


@pytest.mark.parametrize("names", SETS)
def test_the_table_of_names_lists_each_metric_of_kafka(control: int, names: str) -> None:
    listed = {shown.name for shown in names_of(names).shown.values() if shown is not None}
    bare = {re.sub("_(count|sum)$", "", sample.name) for sample in served(control, names)}
    own = {"kafka_server_socketservermetrics_connections_closed_for_cause_total"}
    assert {name for name in bare if name.startswith("kafka_") and name not in own} <= listed | {
        name.removesuffix("_count") for name in listed
    }
