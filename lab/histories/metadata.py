"""Topics: what was acknowledged stays, through everything (rules: ``checker``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.histories.events import FinalTopic, Outcome, TopicChange


class MetadataRules:
    """Topics are only judged where the history names those that exist in the end."""

    def __init__(self) -> None:
        self._changes: dict[str, TopicChange] = {}
        self._topics: dict[str, Mapping[str, str]] = {}

    def changed(self, change: TopicChange) -> None:
        if change.outcome is not Outcome.FAILED:
            self._changes[change.name] = change

    def ended(self, topic: FinalTopic) -> None:
        self._topics[topic.name] = topic.config

    def verdict(self) -> Iterator[tuple[str, str, str]]:
        """Anomaly, topic, sentence."""
        for name, change in self._changes.items():
            config = self._topics.get(name)
            if change.outcome is Outcome.UNKNOWN:
                continue
            if change.exists != (config is not None):
                yield "topic", name, f"it should {'' if change.exists else 'not '}exist"
            elif config is not None and dict(config) != dict(change.config):
                yield "topic", name, f"it has {dict(config)} and was created with {dict(change.config)}"
