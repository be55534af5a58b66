"""Blocks of producer ids for brokers (KIP-730)."""

from __future__ import annotations

from typing import Final

from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1


def allocate(state: ControllerState, broker_id: int, broker_epoch: int) -> Result[range]:
    """Allocate the next block of producer ids for a broker. Raises KafkaError(STALE_BROKER_EPOCH)."""
    state.checked_broker(broker_id, broker_epoch)
    first = state.image.next_producer_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated.")
    following = first + BLOCK_SIZE
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=following)
    return Result((record,), range(first, following))
