"""Whether a release can be published: `make wheel`. Nothing is uploaded.

Builds the sdist, the pure wheel and the compiled one of this platform, checks their metadata (twine), installs each
wheel into an empty environment and runs a cluster from it. Usage: python .ci/release_check.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "milena_kafka"
ONLY_NAME = "milena"
PURE = "py3-none-any"
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
NEEDED = {"README.md", "LICENSE", "pyproject.toml", "setup.py", "compiling/modules.toml", f"{ONLY_NAME}/__main__.py"}
"""What the sdist must hold."""
RECORD = "a record of the release check"
LIMIT = 1200
"""Seconds that any step may take."""


class NotReady(Exception):
    """A check that prevents a release; the message says which."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="keep sdist and wheel here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        out = (options.out or work / "dist").resolve()
        try:
            pure, compiled = check_distributions(out)
            check_cluster(work / "pure", pure, "pure")
            check_cluster(work / "compiled", compiled, "compiled")
        except NotReady as error:
            print(f"not ready for a release: {error}", file=sys.stderr)
            return 1
    print(f"ready for a release: {pure.name}, {compiled.name}")
    return 0


def check_distributions(out: Path) -> tuple[Path, Path]:
    """Build all. Returns the pure wheel and the compiled one. Raises NotReady."""
    print("building sdist and wheels")
    run(sys.executable, "-m", "compiling.wheels", str(out), cwd=ROOT)
    wheels = newest(out, f"*-{PURE}.whl"), newest(out, f"*-cp*-{PLATFORM}.whl")
    sdist = newest(out, "*.tar.gz")
    print("checking metadata")
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, wheels), str(sdist), cwd=ROOT)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            top = {entry.split("/")[0] for entry in archive.namelist()}
        if others := {name for name in top if name != ONLY_NAME and not name.endswith(".dist-info")}:
            raise NotReady(f"{wheel.name} installs {', '.join(sorted(others))} beside {ONLY_NAME}")
    with tarfile.open(sdist) as sources:
        members = {member.split("/", 1)[-1] for member in sources.getnames()}
    if missing := NEEDED - members:
        raise NotReady(f"the sdist lacks {', '.join(sorted(missing))}")
    return wheels


def check_cluster(work: Path, wheel: Path, form: str) -> None:
    """A cluster from the wheel, in an environment that has nothing else. Raises NotReady."""
    print(f"installing the {form} wheel into an empty environment")
    work.mkdir()
    run(sys.executable, str(ROOT / ".ci" / "make_venv.py"), str(work / "venv"), cwd=work)
    python, milena = (str(work / "venv" / "bin" / command) for command in ("python", "milena"))
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), cwd=work)
    if f"({form})" not in (said := run(milena, "--version", cwd=work)):
        raise NotReady(f"{wheel.name} runs as {said!r}")
    print("running a cluster from it")
    where = ("--dir", str(work / "data"))
    topic = ("--brokers", "3", "--port", "0", "--topic", "orders:2:3")
    ready = run(milena, "up", *where, *topic, "--detach", cwd=work)
    try:
        brokers = ("-b", ready.strip().removeprefix("ready bootstrap="))
        run(milena, "produce", *brokers, "orders", cwd=work, stdin=f"{RECORD}\n")
        found = run(milena, "consume", *brokers, "orders", "--from-beginning", "--exit", cwd=work)
    finally:
        run(milena, "down", *where, cwd=work)
    if RECORD not in found:
        raise NotReady(f"the cluster gave {found!r} for a record that was written")


def newest(folder: Path, pattern: str) -> Path:
    """The one that was just built. Raises NotReady."""
    found = sorted(folder.glob(f"{DISTRIBUTION}-{pattern}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise NotReady(f"nothing was built that is named {DISTRIBUTION}-{pattern}")
    return found[-1]


def run(*command: str, cwd: Path, stdin: str = "") -> str:
    """What it printed. Raises NotReady with its last words. A wheel chooses its form itself."""
    environment = {name: value for name, value in os.environ.items() if name != "MILENA_PURE"}
    done = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, check=False, timeout=LIMIT, env=environment
    )
    if done.returncode:
        raise NotReady(f"{' '.join(command[:4])} ...:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
