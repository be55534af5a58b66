"""The registry renders what Prometheus reads."""

from __future__ import annotations

import math

import pytest

from milena.broker.replica.meters import BrokerMeters
from milena.node.metric_names import SETS, TABLE, UnknownNames, names_of
from milena.node.metrics import RECENT, Metrics, Objects, Timing
from milena.node.metrics_text import QUANTILES, SERIES_PER_YIELD, render, rendering
from milena.node.request_meters import error_codes, request_times


def test_counters_timings_and_gauges_render_as_prometheus_text() -> None:
    metrics = Metrics()
    counter = metrics.counter("kafka_messages_total", "Messages.", topic="a")
    counter.add(2)
    metrics.counter("kafka_messages_total", topic='b"\\').add(0.5)
    metrics.timing("kafka_time", request="Fetch").record(1.5)
    metrics.gauge("kafka_count", lambda: 7)
    assert render(metrics) == (
        "# HELP kafka_messages_total Messages.\n"
        "# TYPE kafka_messages_total counter\n"
        'kafka_messages_total{topic="a"} 2\n'
        'kafka_messages_total{topic="b\\"\\\\"} 0.5\n'
        "# TYPE kafka_time summary\n"
        + "".join(f'kafka_time{{request="Fetch",quantile="{share}"}} 1.5\n' for share in QUANTILES)
        + 'kafka_time_count{request="Fetch"} 1\n'
        'kafka_time_sum{request="Fetch"} 1.5\n'
        "# TYPE kafka_count gauge\n"
        "kafka_count 7\n"
    )


def test_a_counter_may_be_read_from_elsewhere() -> None:
    metrics = Metrics()
    metrics.counter_of("process_cpu_seconds_total", lambda: 1.5)
    assert render(metrics) == "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"


def test_the_same_name_and_labels_are_the_same_counter() -> None:
    metrics = Metrics()
    assert metrics.counter("c_total", a="1", b="2") is metrics.counter("c_total", b="2", a="1")
    assert metrics.counter("c_total", a="1") is not metrics.counter("c_total")


def test_removed_series_go() -> None:
    metrics = Metrics()
    metrics.counter("c_total", topic="a").add(1)
    metrics.counter("c_total", topic="b").add(1)
    metrics.remove("c_total", topic="a")
    metrics.remove("c_total", topic="unknown")
    metrics.remove("unknown")
    assert render(metrics) == '# TYPE c_total counter\nc_total{topic="b"} 1\n'
    metrics.remove("c_total", topic="b")
    assert render(metrics) == ""


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
    assert render(metrics) == f"# TYPE g gauge\ng {text}\n"


def test_quantiles_are_of_the_last_durations() -> None:
    metrics = Metrics()
    timing = metrics.timing("t")
    assert render(metrics) == "# TYPE t summary\nt_count 0\nt_sum 0\n"
    for duration in (*[5000.0] * 3, *range(RECENT)):
        timing.record(duration)
    assert 't{quantile="0.5"} 500\n' in render(metrics)
    assert 't{quantile="0.99"} 990\nt{quantile="0.999"} 999\n' in render(metrics)
    assert f"t_count {RECENT + 3}\n" in render(metrics)


def test_objects_have_a_series_in_each_gauge_that_has_a_value_for_them() -> None:
    metrics = Metrics()
    lengths = Objects(lambda: ["a", "bb"], lambda text: {"text": text})
    metrics.gauge_of_objects("length", lengths, len)
    metrics.gauge_of_objects("long", lengths, lambda text: 1 if len(text) > 1 else None)
    assert render(metrics) == (
        '# TYPE length gauge\nlength{text="a"} 1\nlength{text="bb"} 2\n# TYPE long gauge\nlong{text="bb"} 1\n'
    )
    assert metrics.value("length", text="bb") == 2
    with pytest.raises(KeyError):
        metrics.value("long", text="a")


def test_parts_of_a_gauge_are_added_and_functions_of_one_name_add_series() -> None:
    metrics = Metrics()
    metrics.gauge_part("waiting", lambda: 2)
    metrics.gauge_part("waiting", lambda: 3)
    metrics.gauge_of_each("open", lambda: [({"role": "broker"}, 1)])
    metrics.gauge_of_each("open", lambda: [({"role": "controller"}, 2)])
    assert metrics.value("waiting") == 5
    assert [metrics.value("open", role=role) for role in ("broker", "controller")] == [1, 2]


def test_the_text_is_made_in_steps_of_a_bounded_number_of_series() -> None:
    metrics = Metrics()
    metrics.gauge_of_objects("g", Objects(lambda: range(2 * SERIES_PER_YIELD), lambda n: {"n": str(n)}), float)
    metrics.gauge_of_each("h", lambda: [({"n": str(n)}, n) for n in range(2 * SERIES_PER_YIELD)])
    steps = list(rendering(metrics))
    assert len(steps) == 4


def test_a_deleted_topic_stays_in_the_sum_of_all_topics() -> None:
    metrics = Metrics()
    meters = BrokerMeters(metrics)
    meters.of("a").messages_in.add(3)
    meters.of("b").messages_in.add(4)
    meters.forget("a")
    name = "kafka_server_brokertopicmetrics_messagesinpersec_total"
    assert (metrics.value(name), metrics.value(name, topic="b")) == (7, 4)
    assert 'topic="a"' not in render(metrics)
    assert "# HELP kafka_server_brokertopicmetrics_messagesinpersec_total Records appended for producers.\n" in render(
        metrics
    )


class TestSetsOfNames:
    """The names, labels and types were compared with those that jmx_exporter 1.0.1 makes of Kafka 4.4.0's MBeans under
    the rules of Strimzi and of Confluent."""

    def shown(self, chosen: str) -> str:
        metrics = Metrics()
        metrics.counter("kafka_server_brokertopicmetrics_messagesinpersec_total", topic="t").add(2)
        metrics.gauge("kafka_network_socketserver_networkprocessoravgidlepercent", lambda: 0.5)
        metrics.gauge("kafka_server_replicafetchermanager_maxlag", lambda: 1, clientid="Replica")
        metrics.timing("kafka_network_requestmetrics_totaltimems", request="Fetch").record(4)
        metrics.gauge("milena_own", lambda: 1)
        return "".join(
            line + "\n"
            for line in render(metrics, names_of(chosen)).splitlines()
            if "quantile" not in line or 'quantile="0.50"' in line or 'quantile="0.5"' in line
        )

    def test_of_the_metrics_reporter(self) -> None:
        assert self.shown("reporter") == (
            "# TYPE kafka_server_brokertopicmetrics_messagesinpersec_total counter\n"
            'kafka_server_brokertopicmetrics_messagesinpersec_total{topic="t"} 2\n'
            "# TYPE kafka_network_socketserver_networkprocessoravgidlepercent gauge\n"
            "kafka_network_socketserver_networkprocessoravgidlepercent 0.5\n"
            "# TYPE kafka_server_replicafetchermanager_maxlag gauge\n"
            'kafka_server_replicafetchermanager_maxlag{clientid="Replica"} 1\n'
            "# TYPE kafka_network_requestmetrics_totaltimems summary\n"
            'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.5"} 4\n'
            'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 1\n'
            'kafka_network_requestmetrics_totaltimems_sum{request="Fetch"} 4\n'
            "# TYPE milena_own gauge\n"
            "milena_own 1\n"
        )

    def test_of_strimzis_rules(self) -> None:
        assert self.shown("strimzi") == (
            "# TYPE kafka_server_brokertopicmetrics_messagesin_total counter\n"
            'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 2\n'
            "# TYPE kafka_network_socketserver_networkprocessoravgidle_percent gauge\n"
            "kafka_network_socketserver_networkprocessoravgidle_percent 0.5\n"
            "# TYPE kafka_server_replicafetchermanager_maxlag gauge\n"
            'kafka_server_replicafetchermanager_maxlag{clientId="Replica"} 1\n'
            "# TYPE kafka_network_requestmetrics_totaltimems gauge\n"
            'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.50"} 4\n'
            "# TYPE kafka_network_requestmetrics_totaltimems_count counter\n"
            'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 1\n'
            "# TYPE milena_own gauge\n"
            "milena_own 1\n"
        )

    def test_of_confluents_rules(self) -> None:
        assert self.shown("confluent") == (
            "# TYPE kafka_server_brokertopicmetrics_messagesinpersec untyped\n"
            'kafka_server_brokertopicmetrics_messagesinpersec{topic="t"} 2\n'
            "# TYPE kafka_network_socketserver_networkprocessoravgidlepercent untyped\n"
            "kafka_network_socketserver_networkprocessoravgidlepercent 0.5\n"
            "# TYPE kafka_server_replicafetchermanager_maxlag untyped\n"
            'kafka_server_replicafetchermanager_maxlag{clientid="Replica"} 1\n'
            "# TYPE kafka_network_requestmetrics_totaltimems untyped\n"
            'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.50"} 4\n'
            'kafka_network_requestmetrics_totaltimems{request="Fetch"} 1\n'
            "# TYPE milena_own untyped\n"
            "milena_own 1\n"
        )

    @pytest.mark.parametrize("chosen", SETS)
    def test_no_set_has_one_name_for_two_families(self, chosen: str) -> None:
        names = [shown.name for shown in names_of(chosen).shown.values() if shown is not None]
        assert len(set(names)) == len(names) > 140

    def test_the_table_has_a_cell_for_each_set(self) -> None:
        rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]
        assert {len(row) for row in rows} == {1 + len(SETS)}
        assert all(all(row) for row in rows)

    def test_an_unknown_set_is_named(self) -> None:
        with pytest.raises(UnknownNames, match=r"names=x is not known; the sets of names are reporter, strimzi, conf"):
            names_of("x")


class TestTimesOfRequests:
    def test_the_phases_are_shown_in_milliseconds_with_their_sum(self) -> None:
        metrics = Metrics()
        request_times(metrics, "Fetch").record(0.001, 0.002, 0.003, 0.004, 0.005)
        sums = {
            name: f'kafka_network_requestmetrics_{name}_sum{{request="Fetch"}} {milliseconds}\n'
            for name, milliseconds in (
                ("requestqueuetimems", 1),
                ("localtimems", 2),
                ("remotetimems", 3),
                ("responsequeuetimems", 4),
                ("responsesendtimems", 5),
                ("totaltimems", 15),
            )
        }
        text = render(metrics)
        assert [name for name, line in sums.items() if line not in text] == []

    def test_both_roles_of_a_node_share_them(self) -> None:
        metrics = Metrics()
        assert request_times(metrics, "Fetch") is request_times(metrics, "Fetch")
        assert request_times(metrics, "Fetch") is not request_times(metrics, "Produce")

    def test_the_last_requests_are_kept(self) -> None:
        times = request_times(Metrics(), "Fetch")
        for number in range(RECENT + 2):
            times.record(float(number), 0, 0, 0, 0)
        assert times.count == RECENT + 2 and len(times.recent) == RECENT
        assert {phases[0] for phases in times.recent} == set(range(2, RECENT + 2))


def test_error_codes_are_found_in_the_parts_of_an_answer() -> None:
    partition = {"partition_index": 0, "error_code": 6}
    fields = {"error_code": 0, "topics": [{"name": "t", "partitions": [partition, {"error_code": 0}]}], "ids": [1, 2]}
    assert list(error_codes(fields)) == [0, 0, 6, 0]


def test_a_timing_counts_and_adds() -> None:
    timing = Timing()
    timing.record(2)
    timing.record(3)
    assert (timing.count, timing.total_ms, list(timing.recent())) == (2, 5, [2, 3])
