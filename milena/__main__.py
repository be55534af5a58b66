"""The command `milena`: imports and runs one subcommand, and prints a user's error as one line."""

from __future__ import annotations

import os
import sys

from milena.command_line.errors import UserError, reason_of
from milena.command_line.subcommands import COMMANDS

EXAMPLES = """Examples:
  milena up                                         one controller, brokers on 9092, 9093 and 9094
  milena up --brokers 1 --port 19092 --topic t:6:1  one broker and a topic
  milena topic create orders --partitions 6 --replicas 3
  echo hello | milena produce orders
  milena consume orders --from-beginning
  milena log dump milena-data/broker-1/data/orders-*/*.log
  milena down

`milena COMMAND --help` says more."""


def help_text() -> str:
    width = max(map(len, COMMANDS)) + 2
    rows = "\n".join(f"  {name:<{width}}{about}" for name, (_, about) in COMMANDS.items())
    return (
        f"usage: milena COMMAND [options]\n\nKafka's protocol and files, in Python processes.\n\n{rows}\n\n{EXAMPLES}"
    )


def run(arguments: list[str]) -> int:
    """Dispatch to a subcommand. Raises UserError."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version"):
        from milena import VERSION
        from milena.form import running

        print(f"milena {VERSION} ({running()})")
        return 0
    if name not in COMMANDS:
        from milena.command_line.errors import UsageError
        from milena.command_line.options import nearest

        raise UsageError(f"no command {name}{nearest(name, list(COMMANDS))}; `milena --help` lists them")
    from importlib import import_module

    module, _, function = COMMANDS[name][0].partition(":")
    code: int = getattr(import_module(module), function)(rest)
    return code


def main() -> int:
    """The entry point. Returns the exit code."""
    try:
        return run(sys.argv[1:])
    except UserError as error:
        for line in (error, *getattr(error, "__notes__", ())):
            print(f"milena: {line}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader has exited (`milena consume t | head`); keep Python from flushing into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except PermissionError as error:  # a file belongs to another user
        print(f"milena: {reason_of(error)}", file=sys.stderr)
        return UserError.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
