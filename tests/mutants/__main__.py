"""``python -m tests.mutants [--only TEXT]``: what survives, and why; exit code 1 where nobody says why."""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import get_context

from tests.mutants.modules import MODULES
from tests.mutants.reasons import REASONS
from tests.mutants.running import answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="modules whose paths contain this")
    wanted = [path for path in MODULES if parser.parse_args().only in path]
    unexplained, names = 0, set[str]()
    for path in wanted:
        began = time.monotonic()
        count, survivors = _in_process(path)
        names.update(survivors)
        print(f"{path}: {count} mutants, {len(survivors)} survive, {time.monotonic() - began:.0f} s", flush=True)
        for name in survivors:
            reason = REASONS.get(name)
            unexplained += reason is None
            print(
                f"  {name.removeprefix(path + ': ')}\n      {reason or 'NO TEST FAILS, AND NOBODY SAYS WHY'}",
                flush=True,
            )
    stale = [name for name in REASONS if name.startswith(tuple(wanted)) and name not in names]
    for name in stale:
        print(f"no survivor any more: {name}")
    print(f"{unexplained} survivors without a reason, {len(stale)} reasons without a survivor")
    return 1 if unexplained or stale else 0


def _in_process(path: str) -> tuple[int, list[str]]:
    """In a process of its own, which has collected nothing else."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(path, MODULES[path], theirs))
    process.start()
    theirs.close()
    try:
        found: tuple[int, list[str]] = ours.recv()
    except EOFError:
        raise SystemExit(f"{path}: its mutants cannot be run") from None
    finally:
        process.join()
    return found


if __name__ == "__main__":
    sys.exit(main())
