"""A constant load from another process, until it is stopped.

python -m benchmarks.load BOOTSTRAP TOPIC MB_PER_SECOND
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

TICK = 0.01
RECORD = b"x" * 1024
SETTLING = 1.0
"""Seconds until the load is constant."""


@contextmanager
def load(bootstrap: str, topic: str, mb_per_second: float) -> Iterator[None]:
    """Records of 1 KB with acks=all while the context is open. Raises RuntimeError if one was not acknowledged."""
    with beside(f"the load on {topic}", "benchmarks.load", bootstrap, topic, str(mb_per_second)):
        time.sleep(SETTLING)
        yield


@contextmanager
def beside(what: str, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module in another process while the context is open. Raises RuntimeError if it failed."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        _, said = process.communicate(timeout=90)
    if process.returncode:
        raise RuntimeError(f"{what} failed: {said}")


def main(arguments: list[str]) -> int:
    bootstrap, topic, rate = arguments[0], arguments[1], float(arguments[2])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
    records = round(rate * 2**20 * TICK / len(RECORD))
    due = time.monotonic()
    while not stopped:
        for _ in range(records):
            producer.produce(topic, RECORD)
        due += TICK
        producer.poll(max(0.0, due - time.monotonic()))
    return 1 if producer.flush(60) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
