"""Runs the algorithms on real logs in simulation: each on logs of its own, made from the same plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.lab.scenarios.comparing.algorithms import ALGORITHMS, BASELINE, Algorithm, Question
from milena.lab.scenarios.comparing.cases import Case, Comparison, LogPlan, alternating
from milena.lab.scenarios.exchanges import mismatch
from milena.lab.scenarios.remote import records_in
from milena.lab.scenarios.script import TOPIC, Fields
from milena.lab.world.world import World, simulate
from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import Offset
from milena.runtime.context import Runtime
from milena.storage.log.loading import open_alone
from milena.storage.log.unified_log import UnifiedLog

EVERYTHING: Final = 1 << 20
"""A number of bytes larger than any of these logs."""
BITS: Final = 8


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an algorithm. The bits are those of each round beyond KIP-101's, for one partition."""

    exchanges: Sequence[str]
    request_bits: Sequence[int]
    response_bits: Sequence[int]
    total_bytes: int
    """The bytes of all requests and responses, for one partition."""
    truncated_to: int
    """The follower's log end before it fetches."""
    differ: Sequence[int]
    """The first and last offset at which the logs differ after the follower has fetched; empty if they are equal."""

    @property
    def round_trips(self) -> int:
        return len(self.exchanges)

    def fields(self) -> Fields:
        """Return the fields for JSON, and for comparison with a file's expectations."""
        return {"round_trips": self.round_trips, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Compared:
    """A case with its results."""

    case: Case
    results: Mapping[str, Result]

    def wrong(self) -> list[str]:
        """Return the differences from the file's expectations, as text."""
        reasons = {name: mismatch(fields, self.results[name].fields()) for name, fields in self.case.expect.items()}
        return [f"{name}{reason}" for name, reason in reasons.items() if reason is not None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All cases, and the round trips of each algorithm by the number of leaderships."""

    cases: Sequence[Compared]
    longer: Mapping[int, Mapping[str, int]]

    def wrong(self, comparison: Comparison) -> list[str]:
        """Return the differences from the file's expectations, as text."""
        found = [f"{one.case.name}: {reason}" for one in self.cases for reason in one.wrong()]
        for epochs, expected in comparison.longer.items():
            actual = self.longer[epochs]
            found += [
                f"{epochs} leaderships, {name}: expected {count} round trips, found {actual[name]}"
                for name, count in expected.items()
                if actual[name] != count
            ]
        return found


def compare(comparison: Comparison, *, seed: int = 0) -> Outcome:
    """Run every algorithm on every case, and on logs of increasing length."""

    async def run(world: World) -> Outcome:
        bench = _Bench(world)
        cases = [Compared(case, bench.results(case.leader, case.follower)) for case in comparison.cases]
        longer = {}
        for epochs in comparison.longer:
            results = bench.results(*alternating(epochs))
            longer[epochs] = {name: result.round_trips for name, result in results.items()}
        return Outcome(cases, longer)

    return simulate(run, seed=seed)


class _Bench:
    """A simulated machine, and one folder for each log."""

    def __init__(self, world: World) -> None:
        self._runtime: Runtime = world.machine("logs").start()
        self._config = TopicConfig.effective(NodeConfig.of(), {})
        self._logs = 0

    def results(self, leader: LogPlan, follower: LogPlan) -> dict[str, Result]:
        """Return the results by algorithm."""
        return {
            name: run_on(algorithm, self._log(leader), self._log(follower), names=(leader.replica, follower.replica))
            for name, algorithm in ALGORITHMS.items()
        }

    def _log(self, plan: LogPlan) -> UnifiedLog:
        """Write the log as leaders do: a new epoch starts at the log end, even if no record follows in it."""
        self._logs += 1
        runtime, folder = self._runtime, f"/{self._logs}/{TOPIC}-0"
        log = open_alone(runtime.disk, runtime.clock, folder, TOPIC, 0, None, self._config)
        ends = [*list(plan.epochs.values())[1:], plan.log_end_offset]
        for (epoch, start), end in zip(plan.epochs.items(), ends, strict=True):
            log.assign_epoch(epoch, start)
            for offset in range(start, end):
                record = Record(0, 0, None, f"record {offset} of epoch {epoch}".encode())
                batch = build_batch([record], base_timestamp=runtime.clock.time_ms())
                log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=epoch)
        log.set_high_watermark(plan.high_watermark)
        return log


def run_on(algorithm: Algorithm, leader: UnifiedLog, follower: UnifiedLog, *, names: tuple[str, str]) -> Result:
    """Ask until the follower knows where to truncate, then fetch. ``names``: of leader and follower."""
    exchanges, bits, total = [], [], 0
    question: Question | None = None
    agreed = False
    while not agreed:
        question = algorithm.ask(follower, question)
        answer = algorithm.answer(leader, question)
        exchanges.append(f"{names[1]} -> {names[0]}  {algorithm.drawn(question)} -> {answer}")
        request, response = algorithm.request_size(question), algorithm.response_size()
        bits.append((BITS * (request - BASELINE.request_size(question)), BITS * (response - BASELINE.response_size())))
        total += request + response
        cut, agreed = algorithm.decide(follower, question, answer)
        follower.truncate_to(cut)
        agreed = agreed or not follower.epochs.entries
    truncated_to = follower.log_end_offset
    _fetch(leader, follower)
    return Result(
        exchanges=exchanges,
        request_bits=[of_request for of_request, _ in bits],
        response_bits=[of_response for _, of_response in bits],
        total_bytes=total,
        truncated_to=truncated_to,
        differ=_differ(leader, follower),
    )


def _fetch(leader: UnifiedLog, follower: UnifiedLog) -> None:
    while (offset := follower.log_end_offset) < leader.log_end_offset:
        follower.append_as_follower(_bytes(leader, offset))


def _differ(one: UnifiedLog, other: UnifiedLog) -> list[int]:
    left, right = (records_in(bytes(_bytes(log, Offset(0)))) for log in (one, other))
    offsets = sorted(offset for offset in {*left, *right} if left.get(offset) != right.get(offset))
    return [offsets[0], offsets[-1]] if offsets else []


def _bytes(log: UnifiedLog, offset: Offset) -> memoryview:
    return log.read_bytes(offset, EVERYTHING, upper=log.log_end_offset, min_one=True)
