"""`milena sim`: a whole cluster in one process, with simulated clock, network and disk, under load and faults."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.files import check_writable, write_text
from milena.command_line.options import CommandLine, Option, names_in
from milena.lab.chaos.journal import Recording
from milena.lab.chaos.simulated.pages import page_of_seed
from milena.lab.chaos.simulated.seeds import KINDS, STEPS, Report, run_seed
from milena.lab.histories.events import Event, write
from milena.lab.histories.faults import Kind
from milena.lab.world.trace import quiet_logs, show_logs

SWITCH = {None: None, "on": True, "off": False}
SIM = CommandLine(
    "sim",
    "Run a controller and three to five brokers under load and faults, in virtual time, and check the results.\n"
    "The seed determines everything: the same seed gives the same trace, in any process on any machine. The trace\n"
    "goes to standard output; it ends with the verdict and a digest. The exit code is 1 if there is a violation.",
    options=[
        Option("--seed", "the seed of the run", "N", default=0, convert=int),
        Option(
            "--steps",
            "number of node faults in the run; as many of links and of the tier are added",
            "M",
            default=STEPS,
            convert=int,
        ),
        Option(
            "--faults",
            f"only these kinds of faults, separated by commas: {', '.join(kind.value for kind in KINDS)}",
            "KINDS",
        ),
        Option("--tier", "tiered topics: on or off; by default odd seeds have them", "ON"),
        Option("--groups", "more than one consumer group: on or off; by default in two seeds of four", "ON"),
        Option(
            "--compaction",
            "a compacted topic: on or off; by default eight seeds of sixteen have one, which is tiered in four of 32",
            "ON",
        ),
        Option("--transactions", "clients with transactions: on or off; by default in one seed of three", "ON"),
        Option("--history", "write the history of client operations to FILE, one JSON object per line", "FILE"),
        Option(
            "--html",
            "write a page to FILE that shows the run on a time axis; with --soak, that of a failed seed",
            "FILE",
        ),
        Option(
            "--soak",
            "run seeds for this time, or until one fails, without traces: random ones, or from --seed on",
            "SECONDS",
            convert=float,
        ),
    ],
    examples=[
        "milena sim --seed 7",
        "milena sim --seed 7 --steps 20 --faults kill,power-loss",
        "milena sim --seed 7 --html seed-7.html",
        "milena sim --soak 600",
        "milena sim --soak 600 --seed 1000",
    ],
)


class Has(NamedTuple):
    """The optional parts of a run; None if the seed determines whether the run has them. As text: the options that
    select them."""

    tier: bool | None
    groups: bool | None
    compaction: bool | None
    transactions: bool | None

    def __str__(self) -> str:
        given = ((name, value) for name, value in self._asdict().items() if value is not None)
        return "".join(f" --{name} {'on' if value else 'off'}" for name, value in given)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code. Raises UserError."""
    options = SIM.parse(arguments)
    if options.help:
        print(SIM.help())
        return 0
    kinds = KINDS if options.faults is None else _kinds(options.faults)
    for name, value in (
        ("--tier", options.tier),
        ("--groups", options.groups),
        ("--compaction", options.compaction),
        ("--transactions", options.transactions),
    ):
        if value not in SWITCH:
            raise UsageError(f"{name} {value}: must be on or off")
    has = Has(SWITCH[options.tier], SWITCH[options.groups], SWITCH[options.compaction], SWITCH[options.transactions])
    if options.steps < 0 or options.seed < 0:
        raise UsageError("--seed and --steps must not be negative")
    if options.html is not None:
        check_writable(options.html)
    if options.soak is not None:
        if not options.soak >= 0:  # NaN is neither negative nor positive
            raise UsageError(f"--soak {options.soak:g}: not a number of seconds")
        quiet_logs()
        first = options.seed if "seed" in options.given else None
        return _soak(options.soak, options.steps, kinds, has, first, options.html)
    if options.history is not None:
        _save(options.history, [])  # an unwritable path is reported before the run
    report = _run(options.seed, options.steps, kinds, has, _print, options.html)
    if report is None:
        return 1
    if options.history is not None:
        _save(options.history, report.history)
    verdict = (
        f"failed, {_counted(len(report.violations), 'violation')}" if report.violations else "passed, no violations"
    )
    print(f"seed {options.seed}: {verdict}, digest {report.digest}")
    return 1 if report.violations else 0


def _kinds(text: str) -> Sequence[Kind]:
    named = names_in(text, {kind.value: kind for kind in KINDS}, "--faults", "fault")
    return [kind for kind in KINDS if kind in named]


def _run(
    seed: int,
    steps: int,
    kinds: Sequence[Kind],
    has: Has,
    listener: Callable[[str], object] | None,
    html: str | None = None,
) -> Report | None:
    """Run one seed and print its violations. ``listener`` gets the trace with the nodes' logs; None: there is none.
    ``html``: the file of the page. Returns the report; None if the run failed with an error."""
    recording, lines = Recording(), list[str]()

    def listen(line: str) -> None:
        if html is not None:
            lines.append(line)
        if listener is not None:
            listener(line)

    if html is not None or listener is not None:
        show_logs(listen)
    outcome: Report | Exception
    try:
        outcome = run_seed(
            seed,
            steps=steps,
            faults=kinds,
            tier=has.tier,
            groups=has.groups,
            compaction=has.compaction,
            transactions=has.transactions,
            listener=listen,
            recording=recording,
        )
    except Exception as error:
        print(f"seed {seed} failed:\n{traceback.format_exc()}")
        outcome = error
    if html is not None:
        write_text(html, page_of_seed(f"milena {_repetition(seed, steps, kinds, has)}", recording, lines, outcome))
    return _printed(seed, outcome)


def _printed(seed: int, report: Report | Exception) -> Report | None:
    """Print the violations of a seed."""
    if isinstance(report, Exception):
        return None
    for text in report.violations:
        print(f"seed {seed} failed: {text}")
    return report


def _repetition(seed: int, steps: int, kinds: Sequence[Kind], has: Has) -> str:
    faults = "" if tuple(kinds) == tuple(KINDS) else f" --faults {','.join(kind.value for kind in kinds)}"
    return f"sim --seed {seed} --steps {steps}{faults}{has}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _soak(seconds: float, steps: int, kinds: Sequence[Kind], has: Has, first: int | None, html: str | None) -> int:
    """Run seeds without a trace. A failed one is run again for its page."""
    began = time.monotonic()
    count, simulated = 0, 0.0
    while (passed := time.monotonic() - began) < seconds:
        seed = int.from_bytes(os.urandom(4), "big") if first is None else first + count
        report = _run(seed, steps, kinds, has, None)
        if report is None or report.violations:
            print(f"to reproduce: milena {_repetition(seed, steps, kinds, has)}")
            if html is not None:
                _run(seed, steps, kinds, has, None, html)
                print(f"its page: {html}")
            return 1
        count += 1
        simulated += report.seconds
    rate = f"{simulated / 3600:.2f} simulated hours, {simulated / passed:.1f} of them per hour"
    print(f"{_counted(count, 'seed')} passed, {rate}")
    return 0


def _save(path: str, history: Sequence[Event]) -> None:
    try:
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(write(history))
    except OSError as error:
        raise UserError(reason_of(error)) from None


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
