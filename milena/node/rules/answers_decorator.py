"""The base class of decorators that intercept the answer of a request on its way to the connection."""

from __future__ import annotations

from milena.node.api import Answers, RequestContext


class AnswersDecorator:
    """Forwards every call to ``answers``, except ``answered``, which a subclass implements."""

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
