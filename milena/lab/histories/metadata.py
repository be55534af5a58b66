"""Rules for topics: acknowledged changes stay, and every topic was created by a client (rules: ``checker``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from milena.lab.histories.events import AllTopics, Event, FinalTopic, RequestOutcome, TopicChange

MAX_REQUEST_DELAY: Final = 60.0
"""Seconds for which a request may wait in a connection, or in a paused node, before it is executed."""


class MetadataRules:
    """Checks topics, if the history lists all that exist at the end; a run that was interrupted has no such list."""

    def __init__(self) -> None:
        self._changes: dict[str, list[TopicChange]] = {}
        self._topics: dict[str, Mapping[str, str]] = {}
        self._listed = False

    def add(self, event: Event) -> None:
        """Add an event; those of other parts are ignored."""
        match event:
            case TopicChange():
                self._changed(event)
            case FinalTopic():
                self._topics[event.name] = event.config
            case AllTopics():
                self._listed = True

    def _changed(self, change: TopicChange) -> None:
        """An acknowledged change replaces all changes before it. A change of unknown outcome may take effect after an
        acknowledged one, since its request may still be in flight."""
        if change.outcome is RequestOutcome.OK:
            before = self._changes.get(change.name, [])
            late = [
                one
                for one in before
                if one.outcome is RequestOutcome.UNKNOWN and change.begun - one.begun < MAX_REQUEST_DELAY
            ]
            self._changes[change.name] = [change, *late]
        elif change.outcome is RequestOutcome.UNKNOWN:
            self._changes.setdefault(change.name, []).append(change)

    def violations(self) -> Iterator[tuple[str, str, str]]:
        """Yield the violations: name of the anomaly, topic, description."""
        if not self._listed:
            return
        for name, changes in self._changes.items():
            config = self._topics.get(name)
            made = [dict(change.config) for change in changes if change.exists]
            may_lack = len(made) < len(changes) or changes[0].outcome is RequestOutcome.UNKNOWN
            if config is None:
                if not may_lack:
                    yield "topic", name, "it should exist"
            elif not made:
                only_unsure = all(change.outcome is RequestOutcome.UNKNOWN for change in changes)
                yield "topic", name, "no client created it" if only_unsure else "it should not exist"
            elif dict(config) not in made:
                yield "topic", name, f"it has {dict(config)} and was created with {' or '.join(map(str, made))}"
        for name in sorted(self._topics.keys() - self._changes.keys()):
            yield "topic", name, "no client created it"
