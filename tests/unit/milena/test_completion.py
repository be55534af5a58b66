"""`milena completion`: the scripts contain every subcommand and option, and the script for bash works."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from milena.command_line.errors import UsageError
from milena.command_line.subcommands import COMMANDS
from milena.commands.completion import bash, fish, main, words_of, zsh

WORDS = words_of(COMMANDS)


@pytest.mark.parametrize("script", [bash, zsh, fish])
def test_the_scripts_contain_every_subcommand(script: object) -> None:
    assert callable(script)
    text = script(WORDS)
    for word in [*COMMANDS, "delete-records", "reset-offsets", "unregister", "verify"]:
        assert word in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell]) == 0
    assert "milena" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["sc"], ["scenario", "scripts"]),
        (["topic", "de"], ["delete", "delete-records", "describe"]),
        (["topic", "create", "--par"], ["--partitions"]),
        (["up", "--no-m"], ["--no-metrics"]),
        (["group", "reset-offsets", "billing", "--to-"], ["--to-earliest", "--to-latest", "--to-offset"]),
        (["topic", "nonsense", ""], []),
        (["up", "--dir", ""], []),
    ],
)
def test_bash_offers_matching_words(typed: list[str], offered: list[str]) -> None:
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("needs bash")
    script = f"""{bash(WORDS)}
COMP_WORDS=(milena "$@"); COMP_CWORD=$#; _milena; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run([shell, "-c", script, "bash", *typed], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split() == offered


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no completion for bsh \(did you mean bash\?\): bash, zsh or fish"):
        main(["bsh"])
