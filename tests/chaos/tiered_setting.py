"""What the chaos runs with a tier have in common."""

import os

SECONDS = float(os.environ.get("MILENA_CHAOS_SECONDS", "60"))
OVERRIDES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}
TIERED = {
    "min.insync.replicas": "2",
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "internal.segment.bytes": "5000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "500",
}
SYNC = 90.0
"""Seconds in which all are in sync after a fault: a broker that comes back may have to wait for the tier."""
