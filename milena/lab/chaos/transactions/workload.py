"""Clients with transactions, in three kinds of work.

- *Independent*: a producer writes records to several partitions in each transaction, and commits or aborts.
- *Zombies*: a new producer takes over the transactional id of one that does not notice, and continues to write and to
  commit.
- *Chains*: the members of a group read the input topic with read_committed, write each record to the output topic, and
  commit its offset in the same transaction (KIP-447).

Readers with read_committed follow all partitions, and read single ones again from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Final

from milena.lab.chaos.clients import (
    ChaosConsumer,
    ChaosTransactions,
    ChaosTransformer,
    Got,
    TransactingClients,
    WithIdentity,
)
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.topics import Topic
from milena.lab.histories.events import Invoke, RequestOutcome
from milena.lab.histories.transactions.events import (
    CommittedPoll,
    InitTimeout,
    ProducerInit,
    TransactionalSend,
    TransactionBegin,
    TransactionEnd,
    TransactionOffsets,
)
from milena.protocol.types import TopicPartition
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

INDEPENDENT: Final = 2
CHAINS: Final = 2
"""How many transactional ids of each kind a library has."""
POLL: Final = 0.5
TIMEOUTS: Final = (4.0, 15.0, 60.0)
"""Seconds after which a coordinator aborts a transaction: one of these for each producer."""
MOST_RECORDS: Final = 6
"""The most records of a transaction."""
COMMITS: Final = 4
"""How often a commit without an answer is tried."""
LONGEST: Final = 6.0
"""The most seconds for which a slow transaction stays open."""
LONGEST_SESSION: Final = 12.0
LONGEST_POLL: Final = 30.0
"""Seconds after which a member that has not returned from a poll is replaced."""
FINISHED: Final = 40.0
"""Seconds in which each transactional id must be usable again after all faults have ended."""


class Producing:
    """One producer of a transactional id, and its name."""

    def __init__(self, transactions: ChaosTransactions, transactional_id: str, number: int) -> None:
        self.transactions = transactions
        self.name = f"{transactional_id}, {number}"
        self.replaced = asyncio.Event()
        """A newer producer has been initialized."""
        self._count = 0

    def next_transaction(self) -> str:
        self._count += 1
        return f"{self.name}, {self._count}"


class TransactionWorkload:
    """``stopping`` ends the producers, ``read`` the readers."""

    def __init__(
        self,
        clients: TransactingClients,
        topics: tuple[Topic, Topic],
        journal: Journal,
        clock: Clock,
        random: Randomness,
        pace: float,
    ) -> None:
        """``topics``: the input topic and the output topic of chains. Independent transactions write to both.
        ``pace``: seconds between two transactions of a producer, on average."""
        self.stopping = asyncio.Event()
        self.read = asyncio.Event()
        self.group = f"{clients.name}/chains"
        self._clients = clients
        self._source, self._target = topics
        self._places = [*self._source.places, *self._target.places]
        self._journal = journal
        self._clock = clock
        self._random = random
        self._pace = pace
        self._number = 0
        self._ids = [f"{clients.name}/independent {number}" for number in range(INDEPENDENT)]
        chains = CHAINS if clients.fences_members else 0
        self._chain_ids = [f"{clients.name}/chain {number}" for number in range(chains)]

    def all(self) -> list[Coroutine[object, object, None]]:
        """Return the producers and chains."""
        return [*map(self._independent, self._ids), *map(self._chain, self._chain_ids)]

    def readers(self) -> list[Coroutine[object, object, None]]:
        return [self._follow(), self._read_again()]

    async def finish(self) -> None:
        """All faults have ended: initialize each transactional id, which ends its open transaction, and commit one
        transaction with it."""
        async with asyncio.TaskGroup() as finishing:
            for name in (*self._ids, *self._chain_ids):
                finishing.create_task(self._finish(name))

    async def _finish(self, transactional_id: str) -> None:
        begun = self._journal.now()
        until = self._clock.monotonic() + FINISHED
        while self._clock.monotonic() < until:
            producing = await self._initialized(transactional_id)
            done = producing is not None and await self._transact(producing, sure=True)
            if producing is not None:
                await producing.transactions.close()
            if done:
                return
        self._journal.note(InitTimeout(transactional_id, begun, self._journal.now()))

    # -- producers

    async def _independent(self, transactional_id: str) -> None:
        async with asyncio.TaskGroup() as zombies:
            while not self.stopping.is_set():
                producing = await self._initialized(transactional_id)
                if producing is None:
                    continue
                left = 1 + self._random.below(8)
                while left and not self.stopping.is_set() and await self._transact(producing):
                    left -= 1
                    await self._clock.sleep(self._random.uniform(0, 2 * self._pace))
                if left or self._random.below(3) == 0:
                    await producing.transactions.close()
                else:
                    zombies.create_task(self._linger(producing))
                    await self._clock.sleep(self._random.uniform(0, 1))

    async def _initialized(self, transactional_id: str) -> Producing | None:
        """Return a new producer; None if it was not initialized in time."""
        self._number += 1
        timeout = self._random.choice(TIMEOUTS)
        producing = Producing(
            await self._clients.transactions(transactional_id, timeout), transactional_id, self._number
        )
        begun = self._journal.now()
        if not await producing.transactions.init():
            await producing.transactions.close()
            return None
        epochs = self._clients.own_epochs
        self._journal.note(ProducerInit(transactional_id, producing.name, begun, self._journal.now(), epochs))
        return producing

    async def _transact(self, producing: Producing, *, sure: bool = False) -> bool:
        """Run one transaction. ``sure``: commit it at once. Return whether the producer can continue."""
        name = await self._begin(producing)
        if name is None:
            return False
        slow = not sure and self._random.below(6) == 0
        sent = await self._send_some(producing, name)
        if slow:
            await self._clock.sleep(self._random.uniform(0, LONGEST))
            if self._random.below(2):
                sent = sent and await self._send_some(producing, name)
        if sent and (sure or self._random.below(5)):
            return await self._commit(producing, name)
        return await self._abort(producing, name)

    async def _begin(self, producing: Producing) -> str | None:
        name = producing.next_transaction()
        if not await producing.transactions.begin():
            return None
        transactions = producing.transactions
        identity = transactions.identity if isinstance(transactions, WithIdentity) else ""
        self._journal.note(TransactionBegin(name, producing.name, self._journal.now(), identity))
        return name

    async def _send_some(self, producing: Producing, transaction: str) -> bool:
        """Send some records to random partitions at once. Return whether all were acknowledged."""
        places = [self._random.choice(self._places) for _ in range(1 + self._random.below(MOST_RECORDS))]
        return await self._send(producing, transaction, places)

    async def _send(self, producing: Producing, transaction: str, places: Sequence[TopicPartition]) -> bool:
        self._number += 1
        values = [f"{transaction}: {self._number}.{at}" for at in range(len(places))]
        sends = (
            self._send_one(producing, transaction, place, value) for place, value in zip(places, values, strict=True)
        )
        return all(await asyncio.gather(*sends))

    async def _send_one(self, producing: Producing, transaction: str, place: TopicPartition, value: str) -> bool:
        begun = self._journal.now()
        self._journal.note(Invoke("transactional send", begun, place, value, transaction))
        sent = await producing.transactions.send(place, value)
        ended = self._journal.now()
        self._journal.note(TransactionalSend(place, value, transaction, begun, ended, sent.outcome, sent.offset))
        return sent.outcome is RequestOutcome.OK

    async def _commit(self, producing: Producing, transaction: str) -> bool:
        """Commit, and abort if that was rejected. Return whether the producer can continue."""
        begun = self._journal.now()
        self._journal.note(Invoke("commit", begun, key=transaction))
        outcome, unknown = RequestOutcome.UNKNOWN, False
        for _ in range(COMMITS):
            outcome = await producing.transactions.commit()
            if outcome is not RequestOutcome.UNKNOWN:
                break
            unknown = True
        known = RequestOutcome.UNKNOWN if unknown and outcome is RequestOutcome.FAILED else outcome
        self._journal.note(TransactionEnd(transaction, True, begun, self._journal.now(), known))
        if outcome is RequestOutcome.FAILED and not unknown:
            return await self._abort(producing, transaction)
        return outcome is RequestOutcome.OK

    async def _abort(self, producing: Producing, transaction: str) -> bool:
        begun = self._journal.now()
        outcome = await producing.transactions.abort()
        self._journal.note(TransactionEnd(transaction, False, begun, self._journal.now(), outcome))
        return outcome is RequestOutcome.OK

    async def _linger(self, producing: Producing) -> None:
        """Continue after a newer producer has taken over, or die with an open transaction."""
        name = await self._begin(producing)
        if name is not None:
            await self._send_some(producing, name)
            if self._random.below(2):
                await self._clock.sleep(self._random.uniform(0, LONGEST))
                if self._random.below(2):
                    await self._send_some(producing, name)
                await self._commit(producing, name)
        await producing.transactions.close()

    # -- chains

    async def _chain(self, transactional_id: str) -> None:
        while not self.stopping.is_set():
            producing = await self._initialized(transactional_id)
            if producing is None:
                continue
            member = await self._clients.transformer(self.group, [self._source.name])
            until = self._clock.monotonic() + self._random.uniform(3, 2 * LONGEST_SESSION)
            while not self.stopping.is_set() and self._clock.monotonic() < until:
                records = await self._poll(member)
                if records is None or (records and not await self._transform(producing, member, records)):
                    break  # the next member begins at the committed offsets
            await member.close()
            await producing.transactions.close()

    async def _poll(self, member: ChaosTransformer) -> Sequence[Got] | None:
        """Return records; None if the member waits for an offset that stays pending."""
        try:
            async with asyncio.timeout(LONGEST_POLL):
                return await member.poll(POLL)
        except TimeoutError:
            return None

    async def _transform(self, producing: Producing, member: ChaosTransformer, records: Sequence[Got]) -> bool:
        """Write each record to the target, and commit, all in one transaction. Return whether that succeeded."""
        name = await self._begin(producing)
        if name is None:
            return False
        self._note(f"{producing.name}, {member.session}", records, name)
        offsets: dict[TopicPartition, int] = {}
        for got in records:
            first = offsets.get(got.partition)
            offsets[got.partition] = got.offset + 1
            if first is None:
                last = max(other.offset for other in records if other.partition == got.partition)
                self._journal.note(TransactionOffsets(name, self.group, got.partition, got.offset, last + 1))
        if self._random.below(8) == 0:
            await self._clock.sleep(self._random.uniform(0, LONGEST))
        places = [self._random.choice(self._target.places) for _ in records]
        sent = await self._send(producing, name, places)
        sent = sent and await producing.transactions.send_offsets(offsets, member)
        if sent and self._random.below(8):
            return await self._commit(producing, name)
        await self._abort(producing, name)
        return False

    # -- readers

    async def _follow(self) -> None:
        consumer = await self._clients.committed_consumer(dict.fromkeys(self._places, 0))
        await self._read(consumer, f"{self._clients.name}/committed tail", self.read, float("inf"))

    async def _read_again(self) -> None:
        number = 0
        while not self.stopping.is_set():
            await self._clock.sleep(self._random.uniform(0, LONGEST))
            number += 1
            consumer = await self._clients.committed_consumer({self._random.choice(self._places): 0})
            until = self._clock.monotonic() + self._random.uniform(1, LONGEST_SESSION)
            await self._read(consumer, f"{self._clients.name}/committed again, {number}", self.stopping, until)

    async def _read(self, consumer: ChaosConsumer, session: str, ended: asyncio.Event, until: float) -> None:
        while not ended.is_set() and self._clock.monotonic() < until:
            self._note(session, await consumer.poll(POLL))
        await consumer.close()

    def _note(self, session: str, records: Sequence[Got], transaction: str = "") -> None:
        found: dict[TopicPartition, list[tuple[int, str]]] = {}
        for got in records:
            found.setdefault(got.partition, []).append((got.offset, got.value or ""))
        for place, pairs in found.items():
            self._journal.note(CommittedPoll(place, session, self._journal.now(), tuple(pairs), transaction))
