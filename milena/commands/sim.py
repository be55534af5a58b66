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
from milena.command_line.options import CommandLine, Option, names_in
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
        Option("--history", "write the history of client operations to FILE, one JSON object per line", "FILE"),
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
    ):
        if value not in SWITCH:
            raise UsageError(f"{name} {value}: must be on or off")
    has = Has(SWITCH[options.tier], SWITCH[options.groups], SWITCH[options.compaction])
    if options.steps < 0 or options.seed < 0:
        raise UsageError("--seed and --steps must not be negative")
    if options.soak is not None:
        if not options.soak >= 0:  # NaN is neither negative nor positive
            raise UsageError(f"--soak {options.soak:g}: not a number of seconds")
        quiet_logs()
        return _soak(options.soak, options.steps, kinds, has, options.seed if "seed" in options.given else None)
    if options.history is not None:
        _save(options.history, [])  # an unwritable path is reported before the run
    show_logs(_print)
    report = _run(options.seed, options.steps, kinds, has, _print)
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
    seed: int, steps: int, kinds: Sequence[Kind], has: Has, listener: Callable[[str], object] | None
) -> Report | None:
    """Run one seed and print its violations. Returns the report; None if the run failed with an error."""
    try:
        report = run_seed(
            seed,
            steps=steps,
            faults=kinds,
            tier=has.tier,
            groups=has.groups,
            compaction=has.compaction,
            listener=listener,
        )
    except Exception:
        print(f"seed {seed} failed:\n{traceback.format_exc()}")
        return None
    for text in report.violations:
        print(f"seed {seed} failed: {text}")
    return report


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _soak(seconds: float, steps: int, kinds: Sequence[Kind], has: Has, first: int | None) -> int:
    began = time.monotonic()
    count, simulated = 0, 0.0
    while (passed := time.monotonic() - began) < seconds:
        seed = int.from_bytes(os.urandom(4), "big") if first is None else first + count
        report = _run(seed, steps, kinds, has, None)
        if report is None or report.violations:
            faults = "" if tuple(kinds) == tuple(KINDS) else f" --faults {','.join(kind.value for kind in kinds)}"
            print(f"to reproduce: milena sim --seed {seed} --steps {steps}{faults}{has}")
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
