"""The errors that users of the pipeline see."""

from __future__ import annotations

from milena.runtime.logging import get_logger


class PipelineError(ValueError):
    """An error whose text names the option, the object or the offset."""


class DataLoss(PipelineError):
    """Records that should have been read no longer exist (``failOnDataLoss``)."""


class TopicGone(DataLoss):
    """The topic was deleted, or deleted and created again: none of its records is left."""


def recreated(topic: str, before: str, now: str) -> str:
    """Return the message for a topic that has another id now. ``before``, ``now``: the ids as text."""
    return f"topic {topic} was deleted and created again: it had the id {before}, and has {now} now"


def loss(what: str, fail: bool) -> None:
    """Raise DataLoss if ``fail``, otherwise log a warning."""
    if fail:
        raise DataLoss(f"{what} (failOnDataLoss=false reads what is there)")
    get_logger("pipeline").warning("data loss", what=what)
