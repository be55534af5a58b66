"""``python -m benchmarks.own_changes [--milena-only]``: forwarded changes, answered when the broker has applied them.

One client sets a topic's config through a broker and reads it back from the same broker on the same connection.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from benchmarks.forms import PURE
from benchmarks.peers import Kafka, Milena, Peer
from benchmarks.wire import Wire, create_topic
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header

ROUNDS: Final = 1000
WARMING: Final = 200
TOPIC: Final = "changed"
KEY: Final = "flush.ms"
CASES: Final[tuple[tuple[str, str], ...]] = (("waits", "1000"), ("does not wait", "0"))


def main(arguments: list[str]) -> int:
    print("| broker | p50 ms | p99 ms | not seen by the next request |\n|---|---|---|---|")
    for title, timeout in CASES:
        _measure(f"Milena, {title}", Milena(PURE), {"forwarded.request.visible.timeout.ms": timeout})
    if "--milena-only" not in arguments:
        _measure("Kafka", Kafka(), {})
    return 0


def _measure(title: str, peer: Peer, overrides: Mapping[str, str]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="bench-own-") as folder,
        peer.cluster(1, Path(folder), overrides) as running,
    ):
        create_topic(running.bootstrap, TOPIC, 1)
        host, _, port = running.bootstrap.rpartition(":")
        wire = Wire((host, int(port)))
        times, stale = [], 0
        for number in range(WARMING + ROUNDS):
            begin = time.perf_counter()
            _set(wire, str(number + 1))
            taken = time.perf_counter() - begin
            found = _value(wire)
            if number >= WARMING:
                times.append(taken * 1000)
                stale += found != str(number + 1)
        wire.close()
        cuts = quantiles(times, n=100)
        print(f"| {title} | {cuts[49]:.2f} | {cuts[98]:.2f} | {stale} of {ROUNDS} |", flush=True)


def _set(wire: Wire, value: str) -> None:
    change = {"name": KEY, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [change]}
    answer = _ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code == 0, answer


def _value(wire: Wire) -> str | None:
    resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": [KEY]}
    value: str | None = _ask(wire, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results[0].configs[0].value
    return value


def _ask(wire: Wire, key: ApiKey, version: int, **fields: Any) -> Any:
    wire.send(key, version, messages.encode_request(key, version, **fields))
    _, body = parse_response_header(key, version, memoryview(wire.receive()))
    return messages.decode_response(key, version, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
