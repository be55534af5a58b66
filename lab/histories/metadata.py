"""Topics and committed offsets: what was acknowledged stays, through everything; offsets until the promises for the
partition that holds them are void (rules: ``checker``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from lab.histories.events import Commit, Event, FinalCommit, FinalTopic, Outcome, TopicChange, TopicPartition, Void

OFFSETS_TOPIC: Final = "__consumer_offsets"


class MetadataRules:
    """Topics are only judged where the history names those that exist in the end; offsets of groups likewise."""

    def __init__(self) -> None:
        self._changes: dict[str, TopicChange] = {}
        self._commits: list[Commit] = []
        self._void_at = -1.0
        self._topics: dict[str, Mapping[str, str]] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}

    def voided(self, void: Void) -> None:
        if void.partition[0] == OFFSETS_TOPIC:
            self._void_at = max(self._void_at, void.at)

    def add(self, event: Event) -> None:
        match event:
            case TopicChange():
                if event.outcome is not Outcome.FAILED:
                    self._changes[event.name] = event
            case FinalTopic():
                self._topics[event.name] = event.config
            case Commit():
                self._commits.append(event)
            case FinalCommit():
                self._committed[event.group, event.partition] = event.offset
            case _:
                raise TypeError(f"{type(event).__name__} does not concern metadata")

    def verdict(self) -> Iterator[tuple[str, str, str]]:
        """Anomaly, topic or group, sentence."""
        for name, change in self._changes.items():
            config = self._topics.get(name)
            if change.outcome is Outcome.UNKNOWN:
                continue
            if change.exists != (config is not None):
                yield "topic", name, f"it should {'' if change.exists else 'not '}exist"
            elif config is not None and dict(config) != dict(change.config):
                yield "topic", name, f"it has {dict(config)} and was created with {dict(change.config)}"
        for commit in self._commits:
            topic, number = commit.partition
            found = self._committed.get((commit.group, commit.partition), -1)
            if commit.at > self._void_at and found < commit.offset:
                yield (
                    "group offset",
                    commit.group,
                    f"{commit.offset} was committed for {topic}-{number}, it has {found}",
                )
