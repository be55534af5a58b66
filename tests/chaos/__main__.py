"""`make chaos`: clients work while nodes are killed, stopped, cut off and wiped by a seed; the history is judged.

The report folder has the history, the log of the run and the nodes' logs. Exit code 1: something that was promised was
broken, or the run could not be judged; also if an unsafe run did not lose what such settings are expected to lose.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import sys
import traceback
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawTextHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

from milena.command_line.errors import UserError
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.journal import HISTORY
from milena.lab.chaos.own_clients import OwnClients
from milena.lab.chaos.report import write_report
from milena.lab.chaos.runner import ABOUT, PACE, Order, run
from milena.lab.chaos.simulated import run_simulated
from milena.lab.chaos.topics import TOPICS
from milena.lab.chaos.verdict import Verdict, demands_of
from milena.lab.histories.checker import counts
from milena.lab.world.trace import quiet_logs
from tests.chaos.clients.contained import Contained
from tests.chaos.places import LIBRARIES, PLACES, available, libraries

SIMULATION = "simulation"
SIMULATED_PACE = 0.2
SAID = "clients.log"


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    kinds = options.faults
    pace = options.pace or (SIMULATED_PACE if options.on == SIMULATION else PACE)
    report = Path(options.report or mkdtemp(prefix="chaos-"))
    report.mkdir(parents=True, exist_ok=True)
    if any(report.iterdir()):
        print(f"{report} is not empty: a report needs a folder of its own")
        return 1
    order = Order(options.seed, options.seconds, kinds, options.unsafe, pace)
    again = again_of(arguments)
    keep_warnings(report)
    try:
        verdict, errors = _run(options, order, report)
        _draw(order, report)
    except UserError as error:
        print(f"{error}\nagain: {again}")
        return 1
    except Exception as error:
        for one in _leaves(error):
            traceback.print_exception(one)
        print(f"failed: the run could not be judged; see {report}\nagain: {again}")
        print(f"what it has done until then: {judging_of(report)}")
        return 1
    return _tell(verdict, errors, report, again)


def again_of(arguments: Sequence[str]) -> str:
    """The command that runs it again, with a new folder for its report: the old one is not empty."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--report")
    return shlex.join(["python", "-m", "tests.chaos", *parser.parse_known_args(arguments)[1]])


def judging_of(report: Path) -> str:
    """The command that judges the history of a run that did not come to its end."""
    file, about = report / HISTORY, report / ABOUT
    return shlex.join(["milena", "history", "report", str(file), "--about", str(about), "--out", str(report)])


def keep_warnings(report: Path) -> None:
    """What libraries log goes to a file, not to the terminal."""
    logging.captureWarnings(True)
    logging.basicConfig(
        filename=report / SAID,
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


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m tests.chaos", description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--on", choices=(SIMULATION, *PLACES), default="processes", help="where the cluster runs")
    parser.add_argument(
        "--seed", type=int, default=1, help="it determines the faults, and in the simulation everything"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults; the rest of the run comes on top")
    kinds = f"only these, separated by commas: {', '.join(kind.value for kind in Kind)}"
    parser.add_argument("--faults", type=_kinds, help=kinds)
    parser.add_argument("--unsafe", action="store_true", help="acks=1 judged as a promise, and unclean elections")
    parser.add_argument("--pace", type=float, help="seconds between two records of a partition and a client")
    names = ", ".join((OwnClients.name, *LIBRARIES))
    parser.add_argument("--clients", help=f"libraries, separated by commas, instead of all that work here: {names}")
    parser.add_argument("--port", type=int, default=0, help="the first broker's; 0: free ones")
    parser.add_argument("--report", help="a folder for history and logs; a temporary one without it")
    return parser


def _kinds(text: str) -> list[Kind]:
    known = {kind.value: kind for kind in Kind}
    for name in text.split(","):
        if name not in known:
            raise ArgumentTypeError(f"unknown fault {name!r}; there are {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def _run(options: Namespace, order: Order, report: Path) -> tuple[Verdict, list[str]]:
    """The verdict, and errors of libraries for people."""
    if options.on == SIMULATION:
        quiet_logs()
        verdict, digest = run_simulated(order, report)
        print(f"digest {digest}")
        return verdict, []
    names = available() if options.clients is None else options.clients.split(",")
    return asyncio.run(_elsewhere(options.on, order, report, options.port, names))


async def _elsewhere(
    where: str, order: Order, report: Path, port: int, names: Sequence[str]
) -> tuple[Verdict, list[str]]:
    place = await PLACES[where](report / "cluster", port)
    try:
        used = libraries(names, place)
        place.use(used)
        verdict = await run(order, place, report, print_now)
        return verdict, [told for one in used if isinstance(one, Contained) and (told := one.told())]
    finally:
        try:
            await place.keep(report / "logs")
        finally:
            await place.close()


def print_now(line: str) -> None:
    print(line, flush=True)


def _draw(order: Order, report: Path) -> None:
    """The report on the run, where the library that draws it is there."""
    about = json.loads((report / ABOUT).read_text())
    demands = demands_of(list(TOPICS.values()), unsafe=order.unsafe)
    try:
        write_report(report, report / HISTORY, about, demands, print_now)
    except UserError as reason:
        print(f"no report.html: {reason}")


def _tell(verdict: Verdict, errors: Sequence[str], report: Path, again: str) -> int:
    print(f"{verdict.writes} acknowledged writes; the report is in {report}")
    for anomaly, count in sorted(counts(verdict.controls).items(), key=lambda one: one[0].value):
        print(f"expected without promises: {anomaly.value}: {count}")
    for topic, losses in verdict.losses.items():
        told = ", ".join(f"{client} {count}" for client, count in losses.items())
        print(f"writes lost in {topic}, by client: {told or 'none'}")
    for violation in verdict.violations[:30]:
        print(violation)
    if verdict.blind:
        print(f"nothing was lost in {' and '.join(verdict.blind)}: the checker was not seen to see")
    for text in verdict.idle:
        print(f"{text}: the run shows too little")
    for text in errors:
        print(f"{text}; see {SAID}")
    failed = bool(verdict.violations or verdict.blind or verdict.idle or errors)
    print(f"{'failed' if failed else 'passed'}: {len(verdict.violations)} anomalies")
    if failed:
        print(f"again: {again}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
