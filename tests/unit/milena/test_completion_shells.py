"""`milena completion` in real zsh and fish shells, if they are installed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from milena.command_line.subcommands import COMMANDS
from milena.commands.completion import fish, words_of, zsh

WORDS = words_of(COMMANDS)
LIMIT = 30.0
DESCRIBED = re.compile(r"^(\S+) +-- ", re.MULTILINE)
SETUP = """PS1= LISTMAX=1000; autoload -Uz compinit; compinit -D -u
setopt no_beep list_ambiguous; show() {{ print -r -- "[=$BUFFER=]" }}; zle -N show; bindkey '^G' show
{script}; print REA''DY
"""
OFFERED = [
    ("sc", ["scenario"]),
    ("topic de", ["delete", "delete-records", "describe"]),
    ("topic create --par", ["--partitions"]),
    ("up --no-m", ["--no-metrics"]),
    ("group reset-offsets billing --to-", ["--to-earliest", "--to-latest", "--to-offset"]),
    # A group named like a subcommand is no subcommand.
    ("group describe topic --js", ["--json"]),
    # The value of an option is not completed to another option.
    ("up --dir ", ["a-file"]),
    ("topic nonsense ", ["a-file"]),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory of the shells, with one file."""
    (tmp_path / "a-file").touch()
    return tmp_path


@pytest.mark.parametrize(("typed", "offered"), [*OFFERED, ("group describe topic ", ["a-file"])])
def test_fish_offers_matching_words(folder: Path, typed: str, offered: list[str]) -> None:
    shell = shutil.which("fish")
    if shell is None:
        pytest.skip("needs fish")
    command = [shell, "-N", "-c", f"{fish(WORDS)}\ncomplete -C $argv[1]", f"milena {typed}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == offered


class Completed(NamedTuple):
    line: str
    listed: list[str]


class Zsh:
    """An interactive zsh on its own terminal."""

    def __init__(self, shell: str, folder: Path, script: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="dumb", COLUMNS="250", LINES="100")
            os.execv(shell, ["zsh", "-f", "-i"])
        os.write(self._terminal, SETUP.format(script=script).encode())
        self._until("READY")

    def complete(self, typed: str) -> Completed:
        """Type a line and the tab key; returns the completed line and the listed words."""
        os.write(self._terminal, f"milena {typed}\t\x07".encode())
        said = self._until("=]")
        line = said[said.rindex("[=") + 2 : said.rindex("=]")]
        return Completed(line.removeprefix("milena "), DESCRIBED.findall(said))

    def _until(self, mark: str) -> str:
        said = b""
        while mark.encode() not in said:
            assert select.select([self._terminal], [], [], LIMIT)[0], f"{mark} does not come: {said!r}"
            said += os.read(self._terminal, 65536)
        return said.decode().replace("\r", "")

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.fixture(params=["eval", "fpath"])
def terminal(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zsh]:
    """A zsh that has evaluated the script, or whose compinit finds it."""
    shell = shutil.which("zsh")
    if shell is None:
        pytest.skip("needs zsh")
    functions = tmp_path_factory.mktemp("functions")
    (functions / "_milena").write_text(zsh(WORDS) + "\n")
    found = f"fpath=({functions} $fpath); compinit -D -u"
    script = f'eval "$(cat {functions}/_milena)"' if request.param == "eval" else found
    terminal = Zsh(shell, folder, script)
    yield terminal
    terminal.close()


@pytest.mark.parametrize(("typed", "offered"), OFFERED)
def test_zsh_offers_matching_words(terminal: Zsh, typed: str, offered: list[str]) -> None:
    done = terminal.complete(typed)
    if len(offered) > 1:
        assert done == (typed, offered)
    else:
        before = typed.rpartition(" ")[0]
        assert done == (f"{before} {offered[0]} ".lstrip(), [])
