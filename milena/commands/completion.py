"""`milena completion`: scripts that let a shell complete commands and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple

from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, Positional, nearest
from milena.command_line.subcommands import COMMANDS

COMMAND = CommandLine(
    "completion",
    "Print a script that lets a shell complete the subcommands and options of milena.",
    positionals=[Positional("SHELL", "bash, zsh or fish")],
    examples=[
        'eval "$(milena completion bash)"                                 in ~/.bashrc',
        'eval "$(milena completion zsh)"                                  in ~/.zshrc, after compinit',
        "milena completion fish > ~/.config/fish/completions/milena.fish",
    ],
)
HELP: Final = Option("--help", "show the command's help", short="-h")


class Word(NamedTuple):
    """A word that can be completed: a subcommand, with its own subcommands or its options."""

    name: str
    about: str
    words: Sequence[Word]
    options: Sequence[Option]


def main(arguments: Sequence[str]) -> int:
    """Return the exit code. Raises UsageError."""
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    script = SHELLS.get(values.shell)
    if script is None:
        raise UsageError(f"no completion for {values.shell}{nearest(values.shell, list(SHELLS))}: bash, zsh or fish")
    print(script(words_of(COMMANDS)))
    return 0


def words_of(commands: Mapping[str, tuple[str, str]]) -> list[Word]:
    """Return the subcommands of milena with their options and subcommands, as their modules define them."""
    found = []
    for name, (place, about) in commands.items():
        module = import_module(place.partition(":")[0])
        lines = {one.usage: one for one in vars(module).values() if isinstance(one, CommandLine)}
        below = [
            Word(usage.partition(" ")[2], _sentence(line.about), (), (*line.options, HELP))
            for usage, line in sorted(lines.items())
            if usage.startswith(f"{name} ")
        ]
        options = () if name not in lines else lines[name].options
        found.append(Word(name, about, below, (*options, HELP)))
    return found


def _sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def _names(options: Sequence[Option]) -> list[str]:
    return [name for one in options for name in (one.name, one.short) if name]


def _with_values(commands: Sequence[Word]) -> str:
    """Return a shell pattern that matches all options that take a value."""
    options = [option for one in commands for word in (one, *one.words) for option in word.options]
    return "|".join(sorted(set(_names([option for option in options if option.value]))))


def bash(commands: Sequence[Word]) -> str:
    """Return the script for bash. It completes file names if no word fits, and after an option that takes a value."""
    cases = []
    for one in commands:
        if one.words:
            below = [f"{word.name}) words='{' '.join(_names(word.options))}' ;;" for word in one.words]
            names = " ".join(word.name for word in one.words)
            cases += [
                f"        {one.name})",
                f"            words='{names}'",
                '            [ "$COMP_CWORD" -eq 2 ] || case ${COMP_WORDS[2]} in',
                *(f"                {line}" for line in below),
                "                *) words= ;;",
                "            esac ;;",
            ]
        else:
            cases.append(f"        {one.name}) words='{' '.join(_names(one.options))}' ;;")
    lines = [
        "_milena() {",
        "    local words=",
        "    COMPREPLY=()",
        f"    case ${{COMP_WORDS[COMP_CWORD-1]}} in {_with_values(commands)}) return ;; esac",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        words='{' '.join(one.name for one in commands)}'",
        "    else case ${COMP_WORDS[1]} in",
        *cases,
        "    esac; fi",
        '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
        "}",
        "complete -o default -F _milena milena",
    ]
    return "\n".join(lines)


def zsh(commands: Sequence[Word]) -> str:
    """Return the script for zsh. It completes words and options with descriptions, and file names as in bash. It may be
    installed in ``fpath`` as ``_milena``."""
    cases: list[str] = []
    for one in commands:
        if one.words:
            cases += [f"    {one.name})", "        if (( CURRENT == 3 )); then"]
            cases += [f"            words_=({_described(one.words)})", "        else case $words[3] in"]
            cases += [f"            {word.name}) words_=({_options(word.options)}) ;;" for word in one.words]
            cases += ["        esac; fi ;;"]
        else:
            cases.append(f"    {one.name}) words_=({_options(one.options)}) ;;")
    lines = [
        "#compdef milena",
        "_milena() {",
        "    local -a words_",
        f"    case $words[CURRENT-1] in {_with_values(commands)}) _files; return ;; esac",
        f"    if (( CURRENT == 2 )); then words_=({_described(commands)})",
        "    else case $words[2] in",
        *cases,
        "    esac; fi",
        "    _describe 'milena' words_ || _files",
        "}",
        'if [[ $funcstack[1] == _milena ]]; then _milena "$@"; else compdef _milena milena; fi',
    ]
    return "\n".join(lines)


def _described(words: Sequence[Word]) -> str:
    return " ".join(_quoted(f"{_for_describe(one.name)}:{one.about}") for one in words)


def _options(options: Sequence[Option]) -> str:
    return " ".join(_quoted(f"{_for_describe(name)}:{one.help}") for one in options for name in _names([one]))


def _for_describe(name: str) -> str:
    return name.replace(":", "\\:")


def fish(commands: Sequence[Word]) -> str:
    """Return the script for fish. It completes words and options with descriptions. A word counts as a subcommand only
    at its position, since a topic may be named ``group``."""
    return "\n".join([_FISH_PLACES, *_fish_lines(commands)])


def _fish_lines(commands: Sequence[Word]) -> Iterator[str]:
    for one in commands:
        yield f"complete -c milena -f -n __milena_next -a {one.name} -d {_quoted(one.about)}"
    for one in commands:
        for word in one.words:
            first = f"__milena_next {one.name}"
            yield f"complete -c milena -f -n {_quoted(first)} -a {word.name} -d {_quoted(word.about)}"
            below = f"__milena_after {one.name} {word.name}"
            yield from (_fish_option(below, option) for option in word.options)
        if not one.words:
            yield from (_fish_option(f"__milena_after {one.name}", option) for option in one.options)


def _fish_option(condition: str, option: Option) -> str:
    short = f" -s {option.short.lstrip('-')}" if option.short else ""
    value = " -r" if option.value else ""
    about = _quoted(option.help)
    return f"complete -c milena -n {_quoted(condition)} -l {option.name.lstrip('-')}{short}{value} -d {about}"


def _quoted(text: str) -> str:
    """Quote a text so that bash, zsh and fish read it. They escape a single quote within single quotes differently, so
    it is replaced."""
    return "'" + text.replace("'", "\u2019") + "'"


_FISH_PLACES: Final = """\
function __milena_after -d 'whether the line begins with these words'
    set -l typed (commandline -opc)
    set -l at 1
    for word in $argv
        set at (math $at + 1)
        test "$typed[$at]" = $word; or return 1
    end
end
function __milena_next -d 'whether the next word comes right after these'
    test (count (commandline -opc)) -eq (math (count $argv) + 1); and __milena_after $argv
end"""
SHELLS: Final[Mapping[str, Callable[[Sequence[Word]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
