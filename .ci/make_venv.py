"""Make a virtual environment, also where this Python lacks ``ensurepip``. Standard library only.

Usage: python3 .ci/make_venv.py FOLDER

Ways to a pip, tried in this order: ensurepip, another pip on this machine, virtualenv, uv, a pip wheel in a local
wheel folder, the package index that pip is configured for.
"""

from __future__ import annotations

import configparser
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path

OLDEST = (3, 11)
WHEEL = re.compile(r'href="([^"]*/?(pip-(\d+(?:\.\d+)*)-py3-none-any\.whl)[^"]*)"')


def main(folder: str) -> int:
    if sys.version_info < OLDEST:
        print(f"Milena needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}.", file=sys.stderr)
        print("Name another one: make setup PYTHON=python3.12", file=sys.stderr)
        return 1
    python = str(Path(folder).absolute() / "bin" / "python")
    if works(python, "-m", "pip", "--version"):
        return 0
    ways: tuple[Callable[[str, str], bool], ...] = (
        with_ensurepip,
        with_a_pip_nearby,
        with_virtualenv,
        with_uv,
        with_a_wheel,
    )
    for way in ways:
        if way(folder, python) and works(python, "-m", "pip", "--version"):
            return 0
    print(
        f"No way to a pip for {folder}: {sys.executable} has neither ensurepip nor pip, and virtualenv and uv are "
        "missing.\nInstall one of them (Debian and Ubuntu: apt-get install python3-venv), name another Python "
        "(make setup PYTHON=python3.12), or set PIP_INDEX_URL to your package index.",
        file=sys.stderr,
    )
    return 1


def works(*command: str) -> bool:
    try:
        return (
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
        )
    except OSError:
        return False


def without_pip(folder: str) -> None:
    venv.EnvBuilder(with_pip=False, symlinks=True, clear=True).create(folder)


def with_ensurepip(folder: str, python: str) -> bool:
    """``python -m venv`` in a child: it fails half-way where ensurepip is missing or broken."""
    return works(sys.executable, "-m", "venv", "--clear", folder)


def with_a_pip_nearby(folder: str, python: str) -> bool:
    """A pip that serves other interpreters (22.3 and later): of this Python, or of another one on the PATH."""
    candidates = [[sys.executable, "-m", "pip"], ["pip3"], ["pip"]]
    for command in candidates:
        if works(*command, "--version"):
            without_pip(folder)
            if works(*command, "--python", python, "install", "--quiet", "pip"):
                return True
    return False


def with_virtualenv(folder: str, python: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return works(sys.executable, "-m", "virtualenv", folder) or works("virtualenv", "-p", sys.executable, folder)


def with_uv(folder: str, python: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return works("uv", "venv", "--quiet", "--seed", "--python", sys.executable, folder)


def with_a_wheel(folder: str, python: str) -> bool:
    """A pip wheel installs itself: ``python pip.whl/pip install pip.whl``."""
    without_pip(folder)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = wheel_on_disk() or wheel_from_index(scratch)
        return wheel is not None and works(python, f"{wheel}/pip", "install", "--quiet", "--no-index", wheel)


def wheel_on_disk() -> str | None:
    folders = [*os.environ.get("PIP_FIND_LINKS", "").split(), "/usr/share/python-wheels"]
    found = [wheel for folder in folders for wheel in glob.glob(f"{folder}/pip-*-py3-none-any.whl")]
    return max(found, key=lambda path: version(Path(path).name.split("-")[1]), default=None)


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def wheel_from_index(scratch: str) -> str | None:
    """The newest pip of the configured index (PIP_INDEX_URL or a pip.conf), by the simple repository API."""
    index = os.environ.get("PIP_INDEX_URL") or configured_index()
    if index is None:
        return None
    page_address = f"{index.rstrip('/')}/pip/"
    try:
        with urllib.request.urlopen(page_address, timeout=60) as page:
            links = WHEEL.findall(page.read().decode())
        href, name, _ = max(links, key=lambda link: version(link[2]))
        target = os.path.join(scratch, name)
        with urllib.request.urlopen(urllib.parse.urljoin(page_address, href), timeout=60) as wheel:
            Path(target).write_bytes(wheel.read())
    except (OSError, ValueError) as error:
        print(f"No pip from {page_address}: {error}", file=sys.stderr)
        return None
    return target


def configured_index() -> str | None:
    home = Path.home()
    for file in (home / ".pip/pip.conf", home / ".config/pip/pip.conf", Path("/etc/pip.conf")):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(file)
        except configparser.Error:
            continue
        if parser.has_option("global", "index-url"):
            return parser.get("global", "index-url")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
