"""Produce requests whose batches are checked cooperatively."""

from __future__ import annotations

import asyncio
from typing import Any

from milena.broker.apis.produce import handle
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.broker.fixtures import Bench, Request
from tests.unit.broker.hand_clock import HandClock


class Produced:
    """One request that is being handled."""

    def __init__(
        self, bench: Bench, *records: memoryview, version: int = 9, acks: int = 1, topic: str = "t", twice: bool = False
    ) -> None:
        self.bench = bench
        name, topic_id = (topic, None) if version < 13 else (None, bench.image.topics[topic].id)
        partitions: list[tuple[int, memoryview | None]] = [
            (0 if twice else index, one) for index, one in enumerate(records)
        ]
        body = bytearray(
            encode_produce_request(version, ProduceRequest(None, acks, 1000, [(name, topic_id, partitions)]))
        )
        self.request = Request(ApiKey.PRODUCE, version)
        self.task = bench.serve(self.request, handle, body)
        body[:] = b"\xee" * len(body)  # The receive buffer is used again.

    @property
    def held(self) -> bool:
        return self.request.answers.held

    async def slice(self) -> None:
        await goes(self.bench.clock)

    async def finish(self) -> Any:
        """All results of the response."""
        assert self.task is not None, "it was done at once"
        while not self.task.done():
            await self.slice()
        await self.task
        return self.results

    @property
    def results(self) -> Any:
        return decode_produce_response(self.request.version, self.request.body).topics[0][2]


async def goes(clock: HandClock, times: int = 1) -> None:
    """Run this number of iterations of the event loop."""
    for _ in range(times):
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(0)
        await asyncio.sleep(0)


def end(log: UnifiedLog) -> int:
    return log.log_end_offset
