"""Commits of members, as lines of the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.lab.chaos.clients import ChaosMember
from milena.lab.chaos.journal import Journal
from milena.lab.histories.events import Invoke, RequestOutcome
from milena.lab.histories.group_events import OffsetCommit
from milena.protocol.types import TopicPartition

LEAST_BACKOFF: Final = 0.01
"""Seconds. No library tries a commit again sooner: one that was answered before that was sent once."""


async def commit(
    journal: Journal, group: str, name: str, member: ChaosMember, offsets: Mapping[TopicPartition, int]
) -> RequestOutcome:
    """``name``: the member's. Libraries may try again by themselves, and do not tell how often."""
    begun = journal.now()
    for place, offset in offsets.items():
        journal.note(Invoke("offset commit", begun, place, str(offset), group))
    session = member.session
    outcome = await member.commit(offsets)
    ended = journal.now()
    head = (group, "", begun, ended, outcome, f"{name}, {session}", -1)
    retried = ended - begun >= LEAST_BACKOFF
    for place, offset in offsets.items():
        journal.note(OffsetCommit(*head, partition=place, offset=offset, retried=retried))
    return outcome
