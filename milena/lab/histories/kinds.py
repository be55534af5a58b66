"""The events that a history must have so that an anomaly can be found, and the names in Jepsen's workload for Kafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from milena.lab.histories.anomalies import Anomaly
from milena.lab.histories.events import AllTopics, Event, FinalLog, Poll, Send
from milena.lab.histories.faults import Fault
from milena.lab.histories.group_events import Awaited, Join, OffsetCommit, OffsetFetch, Sync
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.transactions.events import (
    CommittedPoll,
    FinalCommitted,
    FinalOffset,
    ProducerInit,
    TransactionalSend,
    TransactionBegin,
    TransactionEnd,
    TransactionOffsets,
)

Kinds: TypeAlias = tuple[type, ...]
STORED: Final[Kinds] = (FinalLog, Poll)
"""Events that contain records."""
COMMITTED: Final[Kinds] = (CommittedPoll, FinalCommitted)
"""Events that contain what read_committed returned."""
NEEDS: Final[Mapping[Anomaly, tuple[Kinds, ...]]] = {
    Anomaly.LOST_WRITE: ((Send,), STORED),
    Anomaly.LOST_IN_LANE: ((Send,), (FinalLog,)),
    Anomaly.DUPLICATE: ((Send, KeyedWrite), (*STORED, FullRead)),
    Anomaly.SENT_AGAIN: ((Send, KeyedWrite), (FinalLog,)),
    Anomaly.INCONSISTENT_OFFSETS: ((Send, KeyedWrite), (*STORED, FullRead, KeyedWrite)),
    Anomaly.ABORTED_READ: ((Send, TransactionalSend), (*STORED, *COMMITTED)),
    Anomaly.PHANTOM: ((*STORED, *COMMITTED),),
    Anomaly.INTERNAL_NONMONOTONIC_SEND: ((Send,),),
    Anomaly.NONMONOTONIC_SEND: ((Send, KeyedWrite),),
    Anomaly.INTERNAL_NONMONOTONIC_POLL: ((Poll,),),
    Anomaly.NONMONOTONIC_POLL: ((Poll,),),
    Anomaly.INTERNAL_POLL_SKIP: ((Poll,),),
    Anomaly.POLL_SKIP: ((Poll,),),
    Anomaly.UNSEEN: ((Send,), (Poll,), (FinalLog,)),
    Anomaly.EPOCH_ORDER: ((FinalLog,),),
    Anomaly.GAP: ((FinalLog,),),
    Anomaly.LOG_START: ((FinalLog,),),
    Anomaly.TOPIC: ((AllTopics,),),
    Anomaly.LOST_VALUE: ((FullRead,),),
    Anomaly.OLDER_VALUE: ((FullRead,),),
    Anomaly.DELETED_KEY_BACK: ((FullRead,),),
    Anomaly.VALUE_FROM_NOWHERE: ((FullRead,),),
    Anomaly.LOST_COMMIT: ((OffsetFetch,),),
    Anomaly.COMMIT_BACK: ((OffsetFetch,),),
    Anomaly.OFFSET_FROM_NOWHERE: ((OffsetFetch,),),
    Anomaly.DELETED_OFFSET_BACK: ((OffsetFetch,),),
    Anomaly.DELETED_GROUP_BACK: ((Join, Sync),),
    Anomaly.OFFSET_ORDER: ((OffsetFetch,),),
    Anomaly.TWO_OWNERS: ((Sync,),),
    Anomaly.OLD_GENERATION: ((OffsetCommit,), (Sync,)),
    Anomaly.GENERATION_BACK: ((Sync,),),
    Anomaly.GENERATION_TWICE: ((Sync,),),
    Anomaly.NEVER_SENT: ((Sync,),),
    Anomaly.TWO_IDS: ((Sync,),),
    Anomaly.NEVER_ANSWERED: ((Awaited,),),
    Anomaly.NOT_RECOVERED: ((Fault,), (Send, KeyedWrite)),
    Anomaly.NO_WRITES: ((Fault,), (Send, KeyedWrite)),
    Anomaly.NO_READS: ((Fault,), (Send, KeyedWrite), (Poll,)),
    Anomaly.NO_COMMITS: ((Fault,), (OffsetCommit,)),
    Anomaly.TORN_TRANSACTION: ((TransactionEnd,), (FinalCommitted,)),
    Anomaly.LOST_COMMITTED_WRITE: ((TransactionEnd,), (FinalCommitted,)),
    Anomaly.FENCED_WRITE: ((ProducerInit,), (TransactionalSend,)),
    Anomaly.SHARED_EPOCH: ((ProducerInit,), (TransactionBegin,)),
    Anomaly.BEYOND_LAST_STABLE: ((TransactionEnd,), (CommittedPoll,)),
    Anomaly.HANGING_TRANSACTION: ((FinalCommitted,),),
    Anomaly.STUCK_ID: ((ProducerInit,), (TransactionEnd,)),
    Anomaly.READ_CYCLE: ((TransactionalSend,), (CommittedPoll,)),
    Anomaly.WITHOUT_OUTPUTS: ((TransactionOffsets,), (FinalCommitted,), (FinalOffset,)),
    Anomaly.WITHOUT_OFFSETS: ((TransactionOffsets,), (FinalOffset,)),
    Anomaly.WRITE_CYCLE: ((TransactionalSend,), COMMITTED),
    Anomaly.DELAYED_REQUEST: ((TransactionEnd,), COMMITTED),
}
"""A history must have an event of each of these groups of kinds."""
JEPSEN: Final[Mapping[Anomaly, str]] = {
    Anomaly.LOST_WRITE: "lost-write",
    Anomaly.DUPLICATE: "duplicate",
    Anomaly.INCONSISTENT_OFFSETS: "inconsistent-offsets",
    Anomaly.ABORTED_READ: "G1a",
    Anomaly.INTERNAL_NONMONOTONIC_SEND: "int-nonmonotonic-send",
    Anomaly.NONMONOTONIC_SEND: "nonmonotonic-send",
    Anomaly.INTERNAL_NONMONOTONIC_POLL: "int-nonmonotonic-poll",
    Anomaly.NONMONOTONIC_POLL: "nonmonotonic-poll",
    Anomaly.INTERNAL_POLL_SKIP: "int-poll-skip",
    Anomaly.POLL_SKIP: "poll-skip",
    Anomaly.UNSEEN: "unseen",
    Anomaly.READ_CYCLE: "G1c",
    Anomaly.WRITE_CYCLE: "G0",
}
"""Jepsen's names; the other anomalies do not exist there."""


def is_judged(anomaly: Anomaly, kinds: Collection[type[Event]]) -> bool:
    """Whether the anomaly can be found in a history with events of these kinds."""
    return all(any(issubclass(kind, one_of) for kind in kinds) for one_of in NEEDS[anomaly])
