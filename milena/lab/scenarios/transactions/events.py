"""Requests of transactions in Kafka's terms, as events of a run show them.

::

    P -> B InitProducerId app: epoch 1
    P -> B AddPartitionsToTxn app, epoch 0, [t-0]: added
    A -> B AddPartitionsToTxn app, epoch 0, [t-0], verify only: TRANSACTION_ABORTABLE
    P -> B EndTxn app, commit, epoch 0: next epoch 1
    B -> A WriteTxnMarkers COMMIT, epoch 1, coordinator epoch 0, [t-0]: written
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from milena.protocol.errors import ErrorCode

NONE: Final = "NONE"
Fields: TypeAlias = Mapping[str, Any]
"""A message, or part of one, as ``node.rules.tracing`` records it."""


class Shown(NamedTuple):
    """A request with its answer. ``error``: its name."""

    api: str
    text: str
    result: str
    error: str


def _init(exchange: Fields) -> Iterator[Shown]:
    request, answer = exchange["request"], exchange["response"]
    continued = f", epoch {request['producer_epoch']}" if request.get("producer_epoch", -1) >= 0 else ""
    text = f"{request['transactional_id'] or 'no transactional id'}{continued}"
    yield Shown("InitProducerId", text, f"epoch {answer['producer_epoch']}", answer["error_code"])


def _add_partitions(exchange: Fields) -> Iterator[Shown]:
    request, answer = exchange["request"], exchange["response"]
    if "transactions" not in request:
        identity = f"{request['v3_and_below_transactional_id']}, epoch {request['v3_and_below_producer_epoch']}"
        text = f"{identity}, [{_places(request['v3_and_below_topics'])}]"
        yield Shown("AddPartitionsToTxn", text, "added", _added(answer["results_by_topic_v3_and_below"]))
        return
    results = {one["transactional_id"]: _added(one["topic_results"]) for one in answer["results_by_transaction"]}
    for one in request["transactions"]:
        text = f"{one['transactional_id']}, epoch {one['producer_epoch']}, [{_places(one['topics'])}]"
        if one["verify_only"]:
            text += ", verify only"
        error = results.get(one["transactional_id"], answer["error_code"])
        yield Shown("AddPartitionsToTxn", text, "verified" if one["verify_only"] else "added", error)


def _added(topics: Sequence[Fields]) -> str:
    """Return the first error of the partitions, by its name."""
    codes = [ErrorCode(one["partition_error_code"]).name for topic in topics for one in topic["results_by_partition"]]
    return next((code for code in codes if code not in (NONE, "OPERATION_NOT_ATTEMPTED")), NONE)


def _add_offsets(exchange: Fields) -> Iterator[Shown]:
    request = exchange["request"]
    text = f"{request['transactional_id']}, epoch {request['producer_epoch']}, group {request['group_id']}"
    yield Shown("AddOffsetsToTxn", text, "added", exchange["response"]["error_code"])


def _commit_offsets(exchange: Fields) -> Iterator[Shown]:
    request = exchange["request"]
    offsets = ", ".join(
        f"{topic['name']}-{one['partition_index']} {one['committed_offset']}"
        for topic in request["topics"]
        for one in topic["partitions"]
    )
    generation = request.get("generation_id", -1)
    member = f"generation {generation}" if generation >= 0 else "no member"
    text = f"{request['transactional_id']}, epoch {request['producer_epoch']}, group {request['group_id']}, {member}"
    codes = [one["error_code"] for topic in exchange["response"]["topics"] for one in topic["partitions"]]
    error = next((code for code in codes if code != NONE), NONE)
    yield Shown("TxnOffsetCommit", f"{text}, {offsets}", "pending", error)


def _end(exchange: Fields) -> Iterator[Shown]:
    request, answer = exchange["request"], exchange["response"]
    outcome = "commit" if request["committed"] else "abort"
    following = answer.get("producer_epoch", -1)
    text = f"{request['transactional_id']}, {outcome}, epoch {request['producer_epoch']}"
    yield Shown("EndTxn", text, f"next epoch {following}" if following >= 0 else "accepted", answer["error_code"])


def _markers(exchange: Fields) -> Iterator[Shown]:
    results = {one["producer_id"]: one["topics"] for one in exchange["response"]["markers"]}
    for marker in exchange["request"]["markers"]:
        outcome = "COMMIT" if marker["transaction_result"] else "ABORT"
        places = _places(marker["topics"], "partition_indexes")
        epochs = f"epoch {marker['producer_epoch']}, coordinator epoch {marker['coordinator_epoch']}"
        codes = [one["error_code"] for topic in results[marker["producer_id"]] for one in topic["partitions"]]
        error = next((code for code in codes if code != NONE), NONE)
        yield Shown("WriteTxnMarkers", f"{outcome}, {epochs}, [{places}]", "written", error)


def _places(topics: Sequence[Fields], numbers: str = "partitions") -> str:
    return ", ".join(f"{topic['name']}-{number}" for topic in topics for number in topic[numbers])


TRANSACTION_EVENTS: Final[Mapping[str, Callable[[Fields], Iterator[Shown]]]] = {
    "INIT_PRODUCER_ID": _init,
    "ADD_PARTITIONS_TO_TXN": _add_partitions,
    "ADD_OFFSETS_TO_TXN": _add_offsets,
    "TXN_OFFSET_COMMIT": _commit_offsets,
    "END_TXN": _end,
    "WRITE_TXN_MARKERS": _markers,
}
"""By the API's name."""
