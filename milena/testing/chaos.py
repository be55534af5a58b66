"""Run `milena chaos`: open a place, run clients and faults there, judge the history and print the verdict.

``Setting`` names the places and client libraries to choose from. The tests pass one that also has containers and
Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import shutil
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.journal import HISTORY
from milena.lab.chaos.own_clients import OldClients, OwnClients
from milena.lab.chaos.place import Place
from milena.lab.chaos.reporting.report import write_report
from milena.lab.chaos.runner import ABOUT, PACE, NotJudged, Order, run
from milena.lab.chaos.simulated.place import run_simulated
from milena.lab.chaos.topics import TOPICS
from milena.lab.chaos.verdict import Verdict, demands_of, judge
from milena.lab.histories.checker import counts
from milena.lab.world.trace import quiet_logs
from milena.testing.chaos_clients.contained import Contained, contained
from milena.testing.chaos_header import header
from milena.testing.chaos_processes import FOLDER, ProcessesPlace

SIMULATION: Final = "simulation"
PROCESSES: Final = "processes"
SIMULATED_PACE: Final = 0.2
CLIENT_LOG: Final = "clients.log"
NOT_JUDGED: Final = 3
"""The exit code if nothing wrong was found, but the machine stalled and the run could not be judged."""
PRINTED: Final = 30
"""The maximum number of violations that are printed; the report has all of them."""


class OpenedPlace(Place, Protocol):
    """A place that accepts any client libraries."""

    def use(self, libraries: Sequence[Clients]) -> None: ...


async def _processes(folder: Path, port: int, tier: str) -> OpenedPlace:
    return await ProcessesPlace.open(folder, port=port, tier=tier)


Opening: TypeAlias = Callable[[Path, int, str], Awaitable[OpenedPlace]]
"""Open a cluster in a folder. The first broker listens at the port unless it is 0. The third argument is where the tier
is: one of ``chaos_processes.TIERS``. Raise UserError if the cluster cannot run here."""


@dataclass(frozen=True, slots=True)
class Library:
    """An adapter in ``milena.testing.chaos_clients`` and the package that it needs."""

    package: str
    module: str
    adapter: str

    def is_installed(self) -> bool:
        return find_spec(self.package) is not None

    def make(self, bootstrap: str) -> Clients:
        """Return the adapter for a cluster at ``bootstrap`` (comma-separated addresses). Raise UserError if the
        library is not installed."""
        if not self.is_installed():
            raise UserError(f"the package {self.package} is not installed")
        module = import_module(f"milena.testing.chaos_clients.{self.module}")
        made: Clients = getattr(module, self.adapter)(bootstrap)
        return made


class LibraryLike(Protocol):
    def is_installed(self) -> bool: ...

    def make(self, bootstrap: str) -> Clients: ...


OWN: Final[Mapping[str, type[OwnClients]]] = {one.name: one for one in (OwnClients, OldClients)}
LIBRARIES: Final[Mapping[str, LibraryLike]] = {
    "confluent-kafka": Library("confluent_kafka", "confluent_transactions", "ConfluentTransactingClients"),
    "kafka-python": Library("kafka", "kafka_python_transactions", "KafkaPythonTransactingClients"),
    "aiokafka": Library("aiokafka", "aio_transactions", "AiokafkaTransactingClients"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """``program``: the words of the command, for messages. The simulation is available in addition to ``places``, and
    Milena's own client in addition to ``libraries``."""

    program: Sequence[str]
    places: Mapping[str, Opening]
    libraries: Mapping[str, LibraryLike]

    @property
    def place_names(self) -> list[str]:
        return [*self.places, SIMULATION]

    @property
    def library_names(self) -> list[str]:
        return [*OWN, *self.libraries]

    def installed(self, *, transactions: bool) -> list[str]:
        """The names of the libraries that work on this machine. ``transactions``: also those without other work."""
        own = OWN if transactions else [OwnClients.name]
        return [*own, *(name for name, one in self.libraries.items() if one.is_installed())]

    def clients(self, names: Sequence[str], place: Place) -> list[Clients]:
        """Return clients of these libraries for the place. Raise UserError for an unknown or missing library."""
        bootstrap = ",".join(f"{host}:{port}" for host, port in place.bootstrap)
        made: list[Clients] = []
        for name in names:
            if name in OWN:
                made.append(OWN[name](place.runtime, place.bootstrap))
            elif name in self.libraries:
                try:
                    made.append(contained(self.libraries[name].make(bootstrap)))
                except UserError as error:
                    raise UserError(f"{name}: {error}") from None
            else:
                raise UserError(f"unknown client library {name!r}; there are {', '.join(self.library_names)}")
        return made


SETTING: Final = Setting(("milena", "chaos"), {PROCESSES: _processes}, LIBRARIES)


@dataclass(frozen=True, slots=True)
class Task:
    """One run: where, with what order, which libraries (None: all that are installed), which port, which tier, and the
    folder of the report. ``again``: the command that repeats it."""

    place: str
    order: Order
    report: Path
    again: str
    libraries: Sequence[str] | None = None
    port: int = 0
    tier: str = FOLDER


def pace_of(place: str) -> float:
    """Return the default of seconds between two records of a partition and a library."""
    return SIMULATED_PACE if place == SIMULATION else PACE


def perform(task: Task, setting: Setting) -> int:
    """Run, judge and print. Return the exit code: 0 if the run passed, ``NOT_JUDGED`` if it could not be judged because
    the machine stalled, else 1."""
    keep_warnings(task.report)
    reason = ""
    try:
        try:
            verdict, errors = _run(task, setting)
        except NotJudged as error:
            reason = str(error)
            topics = list(TOPICS.values())
            verdict, errors = judge(task.report / HISTORY, topics, unsafe=task.order.unsafe), []
        _draw(task.order, task.report)
    except UserError as error:
        print(f"{error}\nto repeat: {task.again}")
        return 1
    except Exception as error:
        for one in _leaves(error):
            traceback.print_exception(one)
        print(f"failed: the run could not be judged; see {task.report}\nto repeat: {task.again}")
        print(f"to judge the history until then: {judging_of(task.report)}")
        return 1
    return _print_verdict(verdict, errors, task, reason)


def judging_of(report: Path) -> str:
    """Return the command that judges the history of an incomplete run."""
    file, about = report / HISTORY, report / ABOUT
    return shlex.join(["milena", "history", "report", str(file), "--about", str(about), "--out", str(report)])


def keep_warnings(report: Path) -> None:
    """Write log messages of client libraries to a file instead of the terminal."""
    logging.captureWarnings(True)
    logging.basicConfig(
        filename=report / CLIENT_LOG,
        level=logging.WARNING,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
        force=True,
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in nested groups of tasks."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _run(task: Task, setting: Setting) -> tuple[Verdict, list[str]]:
    """Return the verdict, and a sentence for each library that raised an error its adapter does not know."""
    if task.place == SIMULATION:
        quiet_logs()
        verdict, digest = run_simulated(task.order, task.report, header=header(task.again, [OwnClients.name]))
        print(f"digest {digest}")
        return verdict, []
    names = setting.installed(transactions=task.order.transactions) if task.libraries is None else task.libraries
    return asyncio.run(run_at(setting.places[task.place], task, lambda place: setting.clients(names, place)))


async def run_at(opened: Opening, task: Task, clients: Callable[[Place], list[Clients]]) -> tuple[Verdict, list[str]]:
    """Open a place, run there and close it. The nodes' logs are kept in any case."""
    place = await opened(task.report / "cluster", task.port, task.tier)
    try:
        used = clients(place)
        place.use(used)
        facts = header(task.again, [library.name for library in used])
        verdict = await run(task.order, place, task.report, _print_now, facts, measured=True)
        return verdict, [text for one in used if isinstance(one, Contained) and (text := one.report())]
    finally:
        try:
            await place.keep(task.report / "logs")
        finally:
            await place.close()


def _print_now(line: str) -> None:
    print(line, flush=True)


def _draw(order: Order, report: Path) -> None:
    """Write the report with its page."""
    about = json.loads((report / ABOUT).read_text())
    demands = demands_of(list(TOPICS.values()), unsafe=order.unsafe)
    write_report(report, report / HISTORY, about, demands, _print_now)


def _print_verdict(verdict: Verdict, errors: Sequence[str], task: Task, reason: str) -> int:
    """``reason``: why the run ended early; "" if it did not."""
    print(f"{verdict.writes} acknowledged writes; the report is in {task.report}")
    for anomaly, count in sorted(counts(verdict.controls).items(), key=lambda one: one[0].value):
        print(f"expected without promises: {anomaly.value}: {count}")
    for topic, losses in verdict.losses.items():
        texts = ", ".join(f"{client} {count}" for client, count in losses.items())
        print(f"writes lost in {topic}, by client: {texts or 'none'}")
    for violation in verdict.violations[:PRINTED]:
        print(violation)
    if verdict.blind:
        print(f"no loss found in {' and '.join(verdict.blind)}: this run does not prove that the checker finds losses")
    for text in verdict.idle:
        print(f"{text}: the run did not do enough to be judged")
    for lack in verdict.not_judged[:PRINTED]:
        print(lack)
    for text in errors:
        print(f"{text}; see {CLIENT_LOG}")
    code = exit_code(verdict, errors, reason)
    if code == NOT_JUDGED:
        print(reason or f"not judged: the machine stalled for {verdict.stalled:.1f} s")
    print(f"{RESULTS[code]}: {len(verdict.violations)} anomalies")
    if code:
        print(f"to repeat: {task.again}")
    return code


RESULTS: Final = {0: "passed", 1: "failed", NOT_JUDGED: "not judged"}


def exit_code(verdict: Verdict, errors: Sequence[str], reason: str) -> int:
    """Return the exit code of a run. Lost or wrong records fail it in any case. What was never done fails it unless the
    machine stalled. ``reason``: why the run ended early because of that."""
    if any(one.fails for one in verdict.violations) or errors:
        return 1
    if reason or verdict.not_judged:
        return NOT_JUDGED
    if verdict.blind or verdict.idle:
        return NOT_JUDGED if verdict.stalled else 1
    return 0


def copy_from(report: Path, name: str, target: Path) -> None:
    """Copy a file of the report of a run, complete or not, if there is one."""
    if (report / name).exists():
        shutil.copyfile(report / name, target)
