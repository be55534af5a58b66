"""The registry renders what Prometheus reads."""

from __future__ import annotations

import math

import pytest

from milena.node.metrics import Metrics


def test_counters_timings_and_gauges_render_as_prometheus_text() -> None:
    metrics = Metrics()
    counter = metrics.counter("kafka_messages_total", "Messages.", topic="a")
    counter.add(2)
    metrics.counter("kafka_messages_total", topic='b"\\').add(0.5)
    metrics.timing("kafka_time", request="Fetch").record(1.5)
    metrics.gauge("kafka_count", lambda: 7)
    assert metrics.render() == (
        "# HELP kafka_messages_total Messages.\n"
        "# TYPE kafka_messages_total counter\n"
        'kafka_messages_total{topic="a"} 2\n'
        'kafka_messages_total{topic="b\\"\\\\"} 0.5\n'
        "# TYPE kafka_time summary\n"
        'kafka_time_count{request="Fetch"} 1\n'
        'kafka_time_sum{request="Fetch"} 1.5\n'
        "# TYPE kafka_count gauge\n"
        "kafka_count 7\n"
    )


def test_a_counter_may_be_read_from_elsewhere() -> None:
    metrics = Metrics()
    metrics.counter_of("process_cpu_seconds_total", lambda: 1.5)
    assert metrics.render() == "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"


def test_the_same_name_and_labels_are_the_same_counter() -> None:
    metrics = Metrics()
    assert metrics.counter("c_total", a="1", b="2") is metrics.counter("c_total", b="2", a="1")
    assert metrics.counter("c_total", a="1") is not metrics.counter("c_total")


def test_series_of_a_deleted_topic_go() -> None:
    metrics = Metrics()
    metrics.counter("c_total", topic="a").add(1)
    metrics.gauge("g", lambda: 1, topic="a", partition="0")
    metrics.counter("c_total", topic="b").add(1)
    metrics.remove_where("topic", "a")
    metrics.remove("c_total", topic="unknown")
    metrics.remove("unknown")
    assert metrics.render() == '# TYPE c_total counter\nc_total{topic="b"} 1\n'
    metrics.remove("c_total", topic="b")
    assert metrics.render() == ""


def test_values_can_be_read_one_by_one() -> None:
    metrics = Metrics()
    metrics.gauge("g", lambda: 4.5)
    metrics.timing("t").record(3)
    assert metrics.value("g") == 4.5 and metrics.value("t") == 1
    with pytest.raises(KeyError):
        metrics.value("unknown")


@pytest.mark.parametrize(("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e3, "1000")])
def test_odd_numbers_have_their_names(value: float, text: str) -> None:
    metrics = Metrics()
    metrics.gauge("g", lambda: value)
    assert metrics.render() == f"# TYPE g gauge\ng {text}\n"
