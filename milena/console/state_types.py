"""The types of ``GET /api/state``, for /openapi.json.

A test compares them with answers: nothing is validated when it is sent, since a state may have millions of numbers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from milena.console.context import Strict


class ClusterState(Strict):
    id: str
    dir: str | None = Field(description="the directory of `milena up`; null without it")
    lab: bool = Field(description="whether nodes have lab commands")
    version: str
    limits: str = Field(description="what is missing in the state, or cannot be controlled")
    bootstrap: str


class CutLink(Strict):
    peer: str
    direction: Literal["in", "out", "both"]


class SetFault(Strict):
    """A fault of disk, clock or tier: the lab command that has set it, and its arguments."""

    model_config = ConfigDict(extra="allow")
    command: Literal["fail_disk", "fill_disk", "slow_disk", "jump_clock", "break_tier"]


class NodeState(Strict):
    id: int
    role: str = Field(description="`broker`, `controller` or `broker,controller`")
    state: Literal["up", "starting", "paused", "down"]
    pid: int | None
    address: str
    log_dirs: list[str]
    memory: int | None = Field(description="resident bytes")
    epoch: int | None = Field(description="the broker epoch")
    fenced: bool | None
    shutting_down: bool | None
    rack: str | None
    metadata_offset: int | None
    leads: int = Field(description="how many partitions")
    hosts: int = Field(description="how many replicas")
    links: list[CutLink]
    faults: list[SetFault]
    troubles: dict[str, int] | None = Field(description="how many calls of disk and tier have failed or were delayed")
    poll_ms: float | None = Field(description="about how long the node takes to answer")


Replica = tuple[
    Annotated[Literal["L", "F", "O"], Field(description="leader, follower or offline")],
    Annotated[int, Field(description="log start offset")],
    Annotated[int, Field(description="local log start offset")],
    Annotated[int, Field(description="high watermark")],
    Annotated[int, Field(description="last stable offset")],
    Annotated[int, Field(description="log end offset")],
    Annotated[int, Field(description="highest offset in the tier")],
    Annotated[int, Field(description="bytes of the local log")],
    Annotated[list[int], Field(description="leader epochs and their start offsets, in turn")],
    Annotated[int, Field(description="leader epoch")],
    Annotated[str, Field(description="state of a follower")],
    Annotated[list[int], Field(description="at the leader: node, log end and broker epoch of each follower, in turn")],
    Annotated[list[int], Field(description="at the leader: the proposed ISR, if it is not committed yet")],
    Annotated[
        list[int],
        Field(
            description="at the leader: producer id, first offset and time of the last batch (ms) of the oldest open "
            "transaction, if there is one"
        ),
    ],
]
"""-1 is unknown."""
Partition = tuple[
    Annotated[int, Field(description="leader; -1: none")],
    Annotated[int, Field(description="leader epoch")],
    Annotated[int, Field(description="partition epoch")],
    Annotated[list[int], Field(description="replicas")],
    Annotated[list[int], Field(description="ISR")],
    Annotated[list[int], Field(description="adding replicas")],
    Annotated[list[int], Field(description="removing replicas")],
    Annotated[list[int], Field(description="eligible leader replicas")],
    Annotated[dict[str, Replica], Field(description="the replicas by broker")],
    Annotated[int, Field(description="leader recovery state")],
]


class TopicState(Strict):
    id: str
    internal: bool
    partitions: list[Partition | None]


class MemberState(Strict):
    id: str
    client: str
    host: str
    assigned: dict[str, list[int]] = Field(description="partitions by topic")


class GroupState(Strict):
    state: str
    type: str
    protocol: str
    coordinator: str | None
    members: list[MemberState]
    offsets: dict[str, dict[str, int]] = Field(description="committed offsets by topic and partition")


TransactionStateName = Literal[
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "CompleteCommit", "CompleteAbort", "Dead"
]


class TransactionalIdState(Strict):
    """A transactional id as its coordinator has it."""

    state: TransactionStateName
    producer_id: int
    producer_epoch: int
    start_ms: int | None = Field(description="when the present or last transaction began")
    update_ms: int | None = Field(description="when the state was written; null if Kafka's protocol was asked")
    timeout_ms: int | None = Field(description="null: the coordinator never aborts the transaction")
    partitions: int = Field(description="how many are in the transaction")
    pending: TransactionStateName | None = Field(
        description="the state whose record is not committed yet; null if Kafka's protocol was asked"
    )


class CoordinatorState(Strict):
    """What one broker coordinates."""

    counts: dict[TransactionStateName, int] = Field(description="numbers of transactional ids by state")
    total: int | None = Field(description="the number of ids; null if it is unknown")
    loading: int = Field(description="partitions of `__transaction_state` that are being loaded")
    ids: dict[str, TransactionalIdState] = Field(
        description="at most 100 with an open transaction, oldest first, at most 100 prepared ones, and the 100 others "
        "that changed last"
    )


class NamedTransactionalId(TransactionalIdState):
    transactional_id: str
    coordinator: int


class ProducerState(Strict):
    """A producer in the state of a partition's leader."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = Field(description="-1 before the first marker")
    last_sequence: int
    last_timestamp: int = Field(description="ms")
    start_offset: int | None = Field(description="the first offset of its open transaction here")


class ProducerOfPartition(Strict):
    topic: str
    partition: int
    producer: ProducerState | None


class TransactionDetails(NamedTransactionalId):
    producers: list[ProducerOfPartition] = Field(description="of the first 200 partitions of the transaction")
    error: str = Field(description="why the partitions' producers are not known")


class HeldRequest(Strict):
    api: str
    client_id: str | None
    gone: bool = Field(description="whether the connection was closed")


class RuleState(Strict):
    """A fault rule: the command that has added it, its arguments, and what it has done."""

    model_config = ConfigDict(extra="allow")
    rule: int
    command: str
    hits: int
    held: list[HeldRequest]


class EventState(Strict):
    n: int
    at_ms: int
    kind: str
    node: str | None
    topic: str | None
    partition: int | None
    text: str
    error: bool


class State(Strict):
    """What docs/http.md describes."""

    seq: int
    stream: str
    time_ms: int
    interval_ms: int
    cluster: ClusterState
    nodes: dict[str, NodeState]
    topics: dict[str, TopicState]
    groups: dict[str, GroupState]
    rules: dict[str, list[RuleState]] = Field(description="by node")
    transactions: dict[str, CoordinatorState] = Field(description="by broker")
    events: list[EventState] = Field(description="the newest 200")


Described = dict[int | str, dict[str, Any]]


def answered(model: Any, about: str) -> Described:  # noqa: ANN401 - a type
    """Return the part of OpenAPI for a successful answer of this type."""
    return {200: {"model": model, "description": about}}
