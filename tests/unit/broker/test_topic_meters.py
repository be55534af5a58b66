"""The meters of a broker's topics."""

from __future__ import annotations

from milena.broker.replica.meters import BrokerMeters
from milena.node.metrics import Metrics


def test_a_deleted_topic_keeps_no_series_and_its_counts() -> None:
    metrics = Metrics()
    meters = BrokerMeters(metrics)
    for name in ("a", "b"):
        meters.of(name).bytes_in.add(3)
    meters.forget("a")
    labels = [dict(key) for family in metrics.families for key in family.current()]
    assert {one["topic"] for one in labels if "topic" in one} == {"b"}
    assert metrics.value("kafka_server_brokertopicmetrics_bytesinpersec_total") == 6
