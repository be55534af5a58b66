"""The amount of work: full measurements, or short ones for CI."""

from __future__ import annotations

from collections.abc import Mapping

Figures = Mapping[str, float]
"""Figures by name; ``goals.py`` describes them."""


class Sizes:
    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.starts = 3 if short else 5
        self.kafka_starts = 1 if short else 3
        self.idle_seconds = 4 if short else 30
        self.latency_rounds = 5
        self.other_rounds = 1 if short else 3
        """Latencies under another load."""
        self.latency_requests = 1_000 if short else 10_000
        self.crowd_requests = 4_000 if short else 20_000
        self.fan_out_records = 200 if short else 2_000
        self.group_rounds = 3
        self.warming_records = 200_000 if short else 1_000_000
        self.measured_records = 200_000 if short else 500_000
        self.throughput_rounds = 1 if short else 3
        self.consumed_records = 400_000 if short else 1_000_000
        self.consumer_rounds = 2 if short else 3
        self.checked_mb = 15 if short else 100
        self.checked_rounds = 3
        self.partitions = 1_000
        self.reset_rounds = 5 if short else 15
        self.idle_replicated_partitions = 300 if short else 1_000
        self.replicated_warming_records = 50_000 if short else 1_000_000
        self.replicated_records = 60_000 if short else 1_000_000
        self.transaction_rounds = 2 if short else 5
        self.transactions_measured = 50 if short else 200
        self.transactional_records = 150_000 if short else 500_000
        self.transactional_ids = 20_000 if short else 100_000
        self.many_partitions = 2_000 if short else 10_000
        self.spark_mb = 200 if short else 2_000
        self.spark_codec_mb = 50 if short else 512
        self.history_operations = 200_000 if short else 20_000_000
        self.cleaned_mb = 100 if short else 1_000
        self.tier_segment_bytes = 64 << 10 if short else 2 << 20
