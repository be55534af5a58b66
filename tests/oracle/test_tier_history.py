"""A Kafka node and a Milena node, each with its own tier, have the same history: tools and metrics return the same."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.up.ports import free
from tests.oracle.kafka_node import running_kafka
from tests.oracle.tier_settings import tier_settings
from tests.oracle.tools import CONSOLE_CONSUMER, CONSUMER_PERFORMANCE, DELETE_RECORDS, JMX, OFFSETS, Tools
from tests.wire.admin import create_topic
from tests.wire.command import node, without_kafka
from tests.wire.properties import combined, write
from tests.wire.waiting import wait_until

TOPIC = "measured"
RECORDS = 100
"""Number of records of about 1,000 bytes, 18 per segment, with timestamps one millisecond apart."""
FIRST_TIME = 1_700_000_000_000
NEWEST = 95
"""The record with the largest timestamp, which is in the local log."""
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
TIMES = (
    *("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered", "earliest-pending-upload"),
    *map(str, (0, FIRST_TIME + 1, FIRST_TIME + 17, FIRST_TIME + 18, FIRST_TIME + 70, FIRST_TIME + 95, 2 * FIRST_TIME)),
)
METERS = "kafka_server_brokertopicmetrics"
ON_FIRST_USE = (
    *("remotefetchbytes", "remotefetchrequests", "remotefetcherrors", "remotecopyerrors"),
    *("remotedeleterequests", "remotedeleteerrors", "buildremotelogauxstaterequests", "buildremotelogauxstateerrors"),
)
"""Meters that Kafka creates for a topic when it counts the first event."""
OF_OUR_OWN = {
    *(f'{METERS}_remoteclean{what}persec_total{{topic="measured"}}' for what in ("bytes", "requests", "errors")),
    f'{METERS}_remotecleaneruncleanablepartitions{{topic="measured"}}',
    f'{METERS}_remotelogcleanlostranges{{topic="measured"}}',
    'kafka_log_remote_remotelogmanager_remotedirtyinpercent{partition="0",topic="measured"}',
}
"""Milena's own meters, of compaction in the tier."""
BROKER_TOPIC = "kafka.server:type=BrokerTopicMetrics,name=*,topic=measured"
OTHERS = ("kafka.log.remote:*", "kafka.server:type=DelayedRemote*,*")


@dataclass(frozen=True)
class Peer:
    """One of the two nodes."""

    bootstrap: str
    data: Path
    tier: Path
    watch: int
    """The port of JMX (Kafka) or of the metrics page (Milena)."""

    @property
    def server(self) -> tuple[str, str]:
        return "--bootstrap-server", self.bootstrap

    def copied(self, topic: str) -> list[int]:
        """Return the base offsets of the segments in the tier."""
        return sorted(int(path.name[:20]) for path in self.tier.glob(f"kafka-tiered-storage/{topic}-0-*/*.log"))

    def history(self, topic: str) -> None:
        create_topic(self.bootstrap, topic, 1, config=CONFIG)
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.num.messages": 1, "log_level": 0})
        for number in range(RECORDS):
            later = 1000 if number == NEWEST else 0
            producer.produce(topic, b"%-1000d" % number, partition=0, timestamp=FIRST_TIME + number + later)
        assert producer.flush(30) == 0

        def is_local_only() -> bool:
            names = [path.name for path in (self.data / f"{topic}-0").glob("*.log")]
            return names == [f"{90:020d}.log"]

        wait_until(is_local_only, "closed segments to be in the tier alone", 60)


@pytest.fixture(scope="module")
def both(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    """Kafka's and Milena's node. (Kafka's node takes 10 s to start and to copy segments.)"""
    folder = tmp_path_factory.mktemp("measured")
    kafka, ours = folder / "kafka", folder / "milena"
    ours.mkdir()
    jmx, control = free("127.0.0.1", 2)
    properties = "-Dcom.sun.management.jmxremote"
    options = (
        f"{properties}.port={jmx}",
        f"{properties}.rmi.port={jmx}",
        f"{properties}.authenticate=false",
        f"{properties}.ssl=false",
        "-Djava.rmi.server.hostname=127.0.0.1",
    )
    theirs = tier_settings(kafka / "tier") | SETTINGS
    file = write(ours, combined(ours) | tier_settings(ours / "tier") | SETTINGS)
    with (
        running_kafka(kafka, options=options, **theirs) as their_node,
        node(ours, file, "--control", str(control), env=without_kafka()) as our_node,
    ):
        address = ":".join(map(str, their_node.broker))
        found = (
            Peer(address, their_node.log_dir, kafka / "tier", jmx),
            Peer(our_node.address, ours / "data", ours / "tier", control),
        )
        for one in found:
            one.history(TOPIC)
        yield found


def test_offsets_for_all_timestamps_are_the_same(tools: Tools, both: tuple[Peer, Peer]) -> None:
    theirs, ours = ([tools(OFFSETS, *one.server, "--topic", TOPIC, "--time", time) for time in TIMES] for one in both)
    assert dict(zip(TIMES, ours, strict=True)) == dict(zip(TIMES, theirs, strict=True))
    assert [found.rpartition(":")[2].strip() for found in ours[:6]] == ["0", "100", "95", "90", "89", "90"]


def test_deleted_records_are_removed_from_both_tiers(tools: Tools, both: tuple[Peer, Peer], tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": "cut", "partition": 0, "offset": 50}]}))
    for one in both:
        one.history("cut")
        assert one.copied("cut") == [0, 18, 36, 54, 72]
        assert "low_watermark: 50" in tools(DELETE_RECORDS, *one.server, "--offset-json-file", str(file))
        wait_until(lambda one=one: one.copied("cut") == [36, 54, 72], "the tier to lose them", 30)  # type: ignore[misc]
    theirs, ours = ([tools(OFFSETS, *one.server, "--topic", "cut", "--time", time) for time in TIMES] for one in both)
    assert dict(zip(TIMES, ours, strict=True)) == dict(zip(TIMES, theirs, strict=True))
    assert ours[0] == "cut:0:50\n"


def test_java_consumers_read_all_from_the_first_offset(tools: Tools, both: tuple[Peer, Peer]) -> None:
    for one in both:
        printed = ("--formatter-property", "print.offset=true", "--formatter-property", "print.timestamp=true")
        words = ("--topic", TOPIC, "--partition", "0", "--offset", "0", "--max-messages", str(RECORDS))
        lines = tools(CONSOLE_CONSUMER, *one.server, *words, *printed).splitlines()
        numbers = [int(line.split("\t")[-1]) for line in lines]
        assert numbers == list(range(RECORDS))
        assert f"CreateTime:{FIRST_TIME + NEWEST + 1000}\t" in lines[NEWEST]
        assert f"Offset:{NEWEST}\t" in lines[NEWEST]
        read = tools(CONSUMER_PERFORMANCE, *one.server, "--topic", TOPIC, "--num-records", str(RECORDS))
        assert re.search(rf"^[^,]+, [^,]+, [^,]+, [^,]+, {RECORDS},", read, re.MULTILINE)


def test_the_metrics_have_kafkas_names(tools: Tools, both: tuple[Peer, Peer]) -> None:
    """The names are those of jmx_exporter. A meter has a count, a timer has a count and a sum."""
    kafka, ours = both
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{kafka.watch}/jmxrmi"
    names = [word for name in (BROKER_TOPIC, *OTHERS) for word in ("--object-name", name)]
    shown = tools(JMX, "--jmx-url", url, *names, "--one-time", "--report-format", "properties")
    theirs = {found for line in shown.splitlines() for found in spelled(line)}
    connection = http.client.HTTPConnection("127.0.0.1", ours.watch, timeout=20)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    found = {line.rpartition(" ")[0] for line in page.splitlines() if line and not line.startswith("#")}
    assert {name for name in theirs if "remote" in name or "topic=" in name} <= found
    more = {name for name in found if "remote" in name and f'topic="{TOPIC}"' in name} - theirs
    assert more <= {f'{METERS}_{name}persec_total{{topic="{TOPIC}"}}' for name in ON_FIRST_USE} | OF_OUR_OWN


def spelled(line: str) -> Iterator[str]:
    """Yield Milena's name of the metric in a line of JmxTool's output: an MBean's count, or the value of a gauge."""
    match = re.fullmatch(r"([^:]+):type=([^,]+),name=([^,:]+)((?:,[a-z]+=[^,:]+)*):(Count|Value)=.*", line)
    if match is None:
        return
    domain, kind, name, rest, attribute = match.groups()
    labels = ",".join(sorted(re.sub("=(.*)", r'="\1"', label) for label in rest.split(",") if label))
    base = f"{domain}_{kind}_{name}".replace(".", "_").lower()
    ending = "" if attribute == "Value" else "_count" if name.endswith("TimeMs") else "_total"
    yield f"{base}{ending}{{{labels}}}" if labels else f"{base}{ending}"
