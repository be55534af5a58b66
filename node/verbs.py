"""Where a request can be caught: rules that drop it, or cut its connection, before its handler sees it.

A server asks ``Rules`` only while there are any. Tests and (from M2) the node's verbs put rules in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from node.api import RequestContext


class Effect(enum.Enum):
    """What happens to a request that a rule matches."""

    DROP = "the request is never answered"
    DISCONNECT = "the connection is closed instead of an answer"


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches requests; a field that is None matches all."""

    effect: Effect
    api_key: int | None = None
    client_host: str | None = None
    client_id: str | None = None

    def matches(self, ctx: RequestContext) -> bool:
        return (
            (self.api_key is None or self.api_key == ctx.header.api_key)
            and (self.client_host is None or self.client_host == ctx.client_host)
            and (self.client_id is None or self.client_id == ctx.client_id)
        )


class Rules:
    """The rules of one node, first match first."""

    def __init__(self) -> None:
        self.active = False
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)
        self.active = True

    def remove(self, rule: Rule) -> None:
        """Raises ValueError where it is not there."""
        self._rules.remove(rule)
        self.active = bool(self._rules)

    def intercepts(self, ctx: RequestContext) -> bool:
        """Apply the first rule that matches; False where none does."""
        for rule in self._rules:
            if rule.matches(ctx):
                if rule.effect is Effect.DISCONNECT:
                    ctx.disconnect("a rule cut the connection")
                return True
        return False
