"""A hostile peer that registers as a broker and sends invalid answers to the nodes that must connect to it."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from tests.attack.tally import Tally
from tests.wire.raw import connected, frame, receive_frame

BROKER: Final = 7
ASKED_WITHIN: Final = 30.0
"""Within so many seconds a follower must send a request to its leader."""
HOSTS: Final = ("a..b", "h" * 64 + ".x", "x" * 30_000, "nul\0", "", "not.there.invalid", "é" * 70)


def invalid_answers(rnd: random.Random) -> dict[str, Callable[[bytes], bytes | None]]:
    """Return the kinds of invalid answers by name: functions from a request to an answer, or to None to close the
    connection."""

    def correlated(request: bytes) -> bytes:
        return request[4:8]

    return {
        "closes": lambda request: None,
        "says nothing": lambda request: b"",
        "another correlation id": lambda request: frame(b"\x7f\0\0\1" + bytes(20)),
        "cut short": lambda request: frame(correlated(request) + b"\0"),
        "an endless length": lambda request: struct.pack(">i", 2**31 - 1) + bytes(100_000),
        "a negative length": lambda request: b"\xff" * 8,
        "random bytes": lambda request: frame(correlated(request) + rnd.randbytes(200)),
        "huge counts": lambda request: frame(correlated(request) + b"\0" + b"\xff\xff\xff\xff\x0f" * 20),
        "zeros": lambda request: frame(correlated(request) + bytes(200)),
        "answers twice": lambda request: frame(correlated(request) + bytes(60)) * 2,
        "text": lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    }


class HostileServer:
    """A server that reads complete requests and sends the result of ``answer``."""

    def __init__(self) -> None:
        self.answer: Callable[[bytes], bytes | None] = lambda request: None
        self.requests = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="hostile", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with plain, contextlib.suppress(OSError):
            plain.settimeout(5)
            while True:
                request = receive_frame(plain)
                self.requests += 1
                answer = self.answer(request)
                if answer is None:
                    return
                plain.sendall(answer)

    def __enter__(self) -> HostileServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


class Controller:
    """A minimal client for the requests of a broker to its controller."""

    def __init__(self, address: str, cluster_id: str) -> None:
        self._address = address
        self._cluster_id = cluster_id

    def call(self, key: ApiKey, version: int, **fields: Any) -> Any:
        with connected(self._address) as plain:
            body = messages.encode_request(key, version, **fields)
            plain.sendall(frame(request_header(key, version, 1, "hostile") + body))
            return messages.decode_response(key, version, parse_response_header(key, version, receive_frame(plain))[1])

    def register(self, broker: int, host: str, port: int) -> int:
        """Register and unfence a broker. Returns the error code; 0 if both requests succeeded."""
        answer = self.call(
            ApiKey.BROKER_REGISTRATION,
            4,
            broker_id=broker,
            cluster_id=self._cluster_id,
            incarnation_id=UUID(int=random.getrandbits(128) | 1),
            listeners=[{"name": "PLAINTEXT", "host": host, "port": port, "security_protocol": 0}],
            features=[
                {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 33},
                {"name": "transaction.version", "min_supported_version": 0, "max_supported_version": 2},
            ],
            log_dirs=[UUID(int=1 << 80 | broker)],
            previous_broker_epoch=-1,
        )
        if answer.error_code:
            return int(answer.error_code)
        beat = self.call(
            ApiKey.BROKER_HEARTBEAT,
            1,
            broker_id=broker,
            broker_epoch=answer.broker_epoch,
            current_metadata_offset=2**40,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=(),
        )
        return int(beat.error_code)


def hostile_peers(controller: Controller, tally: Tally, rnd: random.Random, seconds: float) -> None:
    """Register brokers with unresolvable host names, then brokers that lead a partition and send invalid answers."""
    for at, host in enumerate(HOSTS):
        tally.sent += 1
        tally.codes[f"code {controller.register(BROKER + 1 + at, host, 9092)}"] += 1
    with HostileServer() as server:
        for name, answer in invalid_answers(rnd).items():
            server.answer = answer
            tally.sent += 1
            peer = BROKER + len(HOSTS) + tally.sent
            code = controller.register(peer, "127.0.0.1", server.port)
            created = controller.call(
                ApiKey.CREATE_TOPICS,
                5,
                topics=[
                    {
                        "name": f"hostile-{tally.sent}",
                        "num_partitions": -1,
                        "replication_factor": -1,
                        "assignments": [{"partition_index": 0, "broker_ids": [peer, 1]}],
                        "configs": [],
                    }
                ],
                timeout_ms=1000,
                validate_only=False,
            )
            before = server.requests
            end = time.monotonic() + ASKED_WITHIN
            while server.requests == before and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(seconds)
            if code or created.topics[0].error_code:
                tally.unreadable.append(
                    f"the peer that {name} does not lead a partition: {code}, {created.topics[0].error_message}"
                )
            elif server.requests == before:
                tally.unreadable.append(f"no follower has sent a request to the peer that {name}")
        tally.codes["requests of nodes"] = server.requests
