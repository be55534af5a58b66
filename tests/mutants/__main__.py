"""``python -m tests.mutants``: prints surviving mutants with their reasons; exit code 1 if one has no reason."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import get_context

from tests.mutants.modules import MODULES
from tests.mutants.reasons import REASONS
from tests.mutants.running import Result, answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="modules whose paths contain this")
    parser.add_argument("--sample", type=int, help="at most N mutants of each module", metavar="N")
    parser.add_argument("--seed", default="1", help="which mutants a sample takes", metavar="TEXT")
    options = parser.parse_args()
    sample = options.sample
    wanted: dict[tuple[str, ...], list[str]] = {}
    for path, tests in MODULES.items():
        if options.only in path:
            wanted.setdefault(tests, []).append(path)
    unexplained, stale, count = list[str](), list[str](), 0
    for tests, paths in wanted.items():
        for result in _in_process(paths, tests, sample, options.seed):
            count += len(result.met)
            unexplained += _print_survivors(result)
            stale += _stale(result, sample)
    for name in unexplained:
        print(f"failed: {name}: no test fails, and no reason is given")
    for name in stale:
        print(f"failed: {name}: the reason is outdated, no such mutant survives")
    print(f"{count} mutants, {len(unexplained)} survivors without a reason, {len(stale)} reasons without a survivor")
    return 1 if unexplained or stale else 0


def _print_survivors(result: Result) -> list[str]:
    """Print the survivors of a module with their reasons; returns those without a reason."""
    path = result.path
    print(f"{path}: {len(result.met)} mutants, {len(result.survivors)} survive, {result.seconds:.0f} s", flush=True)
    for name in result.survivors:
        print(f"  {name.removeprefix(path + ': ')}\n      {REASONS.get(name, 'no reason is given')}", flush=True)
    return [name for name in result.survivors if name not in REASONS]


def _stale(result: Result, sample: int | None) -> list[str]:
    """Returns the reasons that are outdated: a test kills the mutant now, or the module has no such mutant any more."""
    met, survivors = set(result.met), set(result.survivors)
    return [
        name
        for name in REASONS
        if name.startswith(f"{result.path}: ") and name not in survivors and (sample is None or name in met)
    ]


def _in_process(paths: Sequence[str], tests: Sequence[str], sample: int | None, seed: str) -> Iterator[Result]:
    """Yields the results of the modules from a separate process, which has collected only these tests."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(paths, tests, sample, seed, theirs))
    process.start()
    theirs.close()
    try:
        for path in paths:
            result: Result = ours.recv()
            assert result.path == path
            yield result
    except EOFError:
        raise SystemExit(f"{', '.join(paths)}: their tests fail without a change, or cannot be collected") from None
    finally:
        process.join()


if __name__ == "__main__":
    sys.exit(main())
