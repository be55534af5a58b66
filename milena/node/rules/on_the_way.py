"""A wrapper for the answers between a request and its connection."""

from __future__ import annotations

from milena.node.api import Answers, RequestContext


class OnTheWay:
    """Passes every call on to ``answers``. A subclass implements ``answered``, where it does its work."""

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
