"""What stands where an answer goes, between a request and its connection."""

from __future__ import annotations

from milena.node.api import Answers, RequestContext


class OnTheWay:
    """Passes everything on to ``answers``. A subclass has ``answered``, and does what it is for in there."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    @property
    def closed(self) -> bool:
        return self._answers.closed

    def hold(self, ctx: RequestContext) -> None:
        self._answers.hold(ctx)

    def release(self, ctx: RequestContext) -> None:
        self._answers.release(ctx)

    def close(self, reason: str) -> None:
        self._answers.close(reason)
