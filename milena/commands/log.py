"""`milena log`: print the files of a log directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from errno import EISDIR

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, chosen

DUMP = CommandLine(
    "log dump",
    "Print the content of files: segments (.log) and metadata snapshots (.checkpoint) as batches and records, indexes, "
    "producer snapshots, checkpoints. The exit code is 1 if a file is damaged.",
    [
        Option("--no-records", "print batches without their records"),
        Option("--from-offset", "begin with the batch that holds this offset", "N", convert=int, default=0),
        Option("--max-batches", "stop after N batches", "N", convert=int),
    ],
    [Positional("FILE", "one or more files", many=True)],
    [
        "milena log dump milena-data/broker-1/data/orders-0/00000000000000000000.log",
        "milena log dump --no-records milena-data/controller-100/data/__cluster_metadata-0/*.log",
        "milena log dump milena-data/broker-1/data/orders-0/leader-epoch-checkpoint",
    ],
)


def main(arguments: Sequence[str]) -> int:
    meant = chosen("log", {"dump": (DUMP, None)}, arguments)
    if meant is None:
        return 0
    _, values = meant
    if not values.file:
        raise UsageError("`milena log dump` needs a file")
    from milena.commands.dump import Damage, Range, UnknownKind, dump

    wanted = Range(not values.no_records, values.from_offset, values.max_batches)
    damaged = False
    for path in values.file:
        try:
            if os.path.isdir(path):
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            os.stat(path)  # open the file first, so that a missing file is reported before an unknown name
            lines = dump(path, wanted)
            print(f"{path}:")
            for line in lines:
                print(line)
        except BrokenPipeError:
            raise  # the reader of our output has exited: not an error of the file
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except UnknownKind as error:
            raise UserError(f"{path}: {error}") from None
        except Damage as damage:
            damaged = True
            print(f"damaged: {damage}")
    return 1 if damaged else 0
