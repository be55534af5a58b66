"""``make wheel``: the sdist, and of it the pure wheel and the one with extensions for this platform.

Usage: python -m compiling.wheels FOLDER [--form pure|compiled]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from compiling.backend import VARIABLE
from compiling.modules import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where they go")
    parser.add_argument("--form", choices=("pure", "compiled"), help="this wheel alone")
    options = parser.parse_args()
    folder = options.folder.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        _build(ROOT, Path(scratch), "--sdist")
        (sdist,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / sdist.name).write_bytes(sdist.read_bytes())
        sources = Path(scratch, sdist.name.removesuffix(".tar.gz"))
        if options.form != "compiled":
            _build(sources, folder, "--wheel")
        if options.form != "pure":
            _build(sources, folder, "--wheel", compiled=True)
    return 0


def _build(sources: Path, folder: Path, what: str, *, compiled: bool = False) -> None:
    """In an environment of its own, which has what the build requires."""
    environment = os.environ | {VARIABLE: "1" if compiled else "0"}
    command = [sys.executable, "-m", "build", "--quiet", what, "--outdir", str(folder), str(sources)]
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
