"""A server with the console's files and a made state: as many partitions as wanted, in motion, without a cluster."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

STATIC = Path(__file__).resolve().parents[2] / "milena" / "console" / "static"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
BROKERS = (1, 2, 3)
START_MS = 1_795_831_282_000
OF_TOPIC = 50
MADE_EVENTS = 50


class MadeState:
    """Partitions of three replicas, of which a share moves with each delta. ``share`` 1.0: all."""

    def __init__(self, partitions: int, share: float, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._share = share
        self.seq = 1
        self.directory: str | None = "/d"
        """Of `milena up`; None: nodes without one."""
        self.faults: list[dict[str, Any]] = []
        """Of broker 1."""
        self.transactions: dict[str, dict[str, Any]] = {}
        """What coordinators have, in the full state."""
        self.changed_transactions: dict[str, dict[str, Any]] = {}
        """What of it the next delta has."""
        self.read = 0
        """How often the whole state was read."""
        self._places = [(f"topic-{number // OF_TOPIC:03}", number % OF_TOPIC) for number in range(partitions)]
        self._ends = [self._random.randrange(1_000, 50_000) for _ in self._places]

    def full(self) -> dict[str, Any]:
        self.read += 1
        topics: dict[str, Any] = {}
        for at, (topic, number) in enumerate(self._places):
            rows = topics.setdefault(topic, {"id": f"id-{topic}", "internal": False, "partitions": []})["partitions"]
            leader = BROKERS[number % 3]
            rows.append([leader, 5, 7, list(BROKERS), list(BROKERS), [], [], [], self._replicas(at, BROKERS), 0])
        return {
            "seq": self.seq,
            "stream": "made",
            "time_ms": START_MS,
            "interval_ms": 500,
            "cluster": {
                "id": "made",
                "dir": self.directory,
                "lab": True,
                "bootstrap": "127.0.0.1:9092",
                "version": "0",
                "limits": "",
            },
            "nodes": {f"broker-{id}": self._node(id) for id in BROKERS} | {"controller-100": self._node(100)},
            "topics": topics,
            "groups": {},
            "rules": {},
            "transactions": self.transactions,
            "events": [self._event(number) for number in range(MADE_EVENTS)],
        }

    def delta(self) -> dict[str, Any]:
        self.seq += 1
        moved = self._random.sample(range(len(self._places)), int(len(self._places) * self._share))
        for at in moved:
            self._ends[at] += self._random.randrange(1, 50)
        return {
            "seq": self.seq,
            "time_ms": START_MS + 500 * self.seq,
            "interval_ms": 500,
            "parts": [[*self._places[at], None, self._replicas(at, BROKERS)] for at in moved],
            "nodes": {"broker-1": self._node(1)},
            "transactions": self.changed_transactions,
            "events": [self._event(self.seq)],
        }

    def _replicas(self, at: int, ids: tuple[int, ...]) -> dict[str, list[Any]]:
        number = self._places[at][1]
        end, leader = self._ends[at], BROKERS[number % 3]
        found: dict[str, list[Any]] = {}
        for id in ids:
            log_end = end if id == leader else end - self._random.randrange(0, 3)
            local = 800 if number % 5 == 0 else 0
            epochs = [1, 0, 3, 400, 5, 900]
            followers = [0, 0, 0] if id == leader else []
            role, state = ("L", "") if id == leader else ("F", "Fetching")
            found[str(id)] = [
                role,
                0,
                local,
                end - 3,
                end - 3,
                log_end,
                local - 1,
                1 << 20,
                epochs,
                5,
                state,
                followers,
                [],
                [],
            ]
        return found

    def _node(self, id: int) -> dict[str, Any]:
        is_broker = id < 100
        return {
            "id": id,
            "role": "broker" if is_broker else "controller",
            "state": "up",
            "pid": 4000 + id,
            "address": f"127.0.0.1:{9091 + id}",
            "epoch": 12 + id if is_broker else None,
            "fenced": False if is_broker else None,
            "shutting_down": False if is_broker else None,
            "rack": None,
            "log_dirs": ["/d"],
            "metadata_offset": 1000 + self.seq,
            "leads": len(self._places) // 3,
            "hosts": len(self._places),
            "memory": 80_000_000 + self.seq,
            "links": [],
            "troubles": None,
            "faults": self.faults if id == 1 else [],
            "poll_ms": 4.2,
        }

    def _event(self, number: int) -> dict[str, Any]:
        return {
            "n": number,
            "at_ms": START_MS + 500 * number,
            "kind": "election" if number % 4 else "fenced",
            "node": "broker-1",
            "topic": "topic-000",
            "partition": 0,
            "text": f"topic-000-0: leader 1 -> 2, leader epoch {number}",
            "error": number % 4 == 0,
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    made: MadeState
    interval: float
    stopped: threading.Event
    reset: threading.Event

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/api/state":
            self._answer(json.dumps(self.made.full()).encode(), "application/json")
        elif path == "/api/events":
            self._stream()
        elif path.startswith("/api/"):
            self._answer(b"{}", "application/json")
        else:
            file = STATIC / (path.lstrip("/") or "index.html")
            if not file.is_file():
                self.send_error(404)
                return
            self._answer(file.read_bytes(), TYPES.get(file.suffix, "text/plain"))

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while not self.stopped.wait(self.interval):
                delta = self.made.delta()
                if self.reset.is_set():
                    self.reset.clear()
                    self.wfile.write(b'event: reset\ndata: {"reason": "too slow"}\n\n')
                self.wfile.write(f"event: delta\nid: made-{delta['seq']}\ndata: {json.dumps(delta)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            return

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: requests are not logged."""


class Served(NamedTuple):
    """A running server. After ``reset.set()`` the next delta is preceded by the event ``reset``."""

    url: str
    made: MadeState
    reset: threading.Event


@contextmanager
def served(partitions: int, share: float = 0.3, interval: float = 0.5) -> Iterator[Served]:
    """Serve a made state on a free port."""
    stopped, reset, made = threading.Event(), threading.Event(), MadeState(partitions, share)
    members = {"made": made, "interval": interval, "stopped": stopped, "reset": reset}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Made", (Handler,), members))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_address[1]}/", made, reset)
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
