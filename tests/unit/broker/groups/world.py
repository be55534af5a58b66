"""A group with a manual clock, and members that store their responses."""

from __future__ import annotations

from collections.abc import Mapping

from milena.broker.groups.group import Group, Persisted
from milena.broker.groups.joining import join
from milena.broker.groups.membership import heartbeat, leave, sync
from milena.broker.groups.model import GroupSettings, JoinAnswer, JoinRequest, SyncAnswer
from milena.broker.groups.rebalance import expire, next_deadline_ms
from milena.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class GroupWorld:
    """One group. Writes are committed at once unless ``hold_writes`` is set, then by ``commit``."""

    def __init__(self, **settings: int) -> None:
        self.now_ms = 1_000_000
        self.written: list[dict[str, bytes] | None] = []
        self.hold_writes = False
        self.refused = ErrorCode.NONE
        """The error with which every write is refused."""
        self._held: list[Persisted] = []
        self._ids = 0
        self.group = Group("readers", now_ms=self.now_ms, settings=GroupSettings(**settings), shard=self)

    def persist(self, group: Group, assignments: Mapping[str, bytes] | None, done: Persisted) -> ErrorCode:
        if self.refused is not ErrorCode.NONE:
            return self.refused
        self.written.append(None if assignments is None else dict(assignments))
        return self._wrote(done)

    def persist_static_id(self, group: Group, instance_id: str, member_id: str, done: Persisted) -> ErrorCode:
        return self._wrote(done) if self.refused is ErrorCode.NONE else self.refused

    def _wrote(self, done: Persisted) -> ErrorCode:
        if self.hold_writes:
            self._held.append(done)
        else:
            done(ErrorCode.NONE)
        return ErrorCode.NONE

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        held, self._held = self._held, []
        for done in held:
            done(error)

    def new_member_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def time_ms(self) -> int:
        return self.now_ms

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        protocol_type: str = "consumer",
        known_id_needed: bool = False,
        skip: bool = True,
        client: str = "c",
    ) -> list[JoinAnswer]:
        answers: list[JoinAnswer] = []
        request = JoinRequest(
            member_id,
            instance,
            client,
            "/127.0.0.1",
            SESSION_MS,
            REBALANCE_MS,
            protocol_type,
            protocols,
            known_id_needed,
            skip,
        )
        join(self.group, request, answers.append, self.now_ms)
        return answers

    def sync(
        self, answer: JoinAnswer, shares: Mapping[str, bytes] | None = None, *, generation: int | None = None
    ) -> list[SyncAnswer]:
        answers: list[SyncAnswer] = []
        sync(
            self.group,
            member_id=answer.member_id,
            instance_id=None,
            generation=answer.generation if generation is None else generation,
            protocol_type=None,
            protocol_name=None,
            assignments=shares or {},
            reply=answers.append,
            now_ms=self.now_ms,
        )
        return answers

    def heartbeat(self, answer: JoinAnswer) -> ErrorCode:
        return heartbeat(
            self.group,
            member_id=answer.member_id,
            instance_id=None,
            generation=answer.generation,
            now_ms=self.now_ms,
        )

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        return leave(self.group, member_id=member_id, instance_id=instance, now_ms=self.now_ms)

    def advance(self, ms: int) -> None:
        """Let time pass, with a call of ``expire`` at each deadline."""
        end = self.now_ms + ms
        while (deadline := next_deadline_ms(self.group)) is not None and deadline <= end:
            self.now_ms = max(deadline, self.now_ms)
            expire(self.group, self.now_ms)
        self.now_ms = end

    def stable(self, count: int = 1, **names: str) -> list[JoinAnswer]:
        """Bring an empty group to Stable with ``count`` members, the first of them its leader."""
        waiting = [self.join(**names) for _ in range(count)]  # type: ignore[arg-type]
        self.advance(self.group.settings.initial_delay_ms * (count + 1) + 1)
        joined = [answers[0] for answers in waiting]
        syncs = [self.sync(answer) for answer in joined[1:]]
        self.sync(joined[0], {answer.member_id: answer.member_id.encode() for answer in joined})
        assert all(answers for answers in syncs)
        return joined
