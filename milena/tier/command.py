"""`milena tier`: list, show, fetch, verify, restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from milena.errors import UsageError
from milena.options import CommandLine, Option, Positional, Values, nearest
from milena.tier.places import PLACES

Body: TypeAlias = Callable[[Values], int]
TOPICS = Positional("TOPIC", "topics, or partitions as TOPIC:PARTITION; all without any", many=True)

LIST = CommandLine(
    "tier ls",
    "List the segments in a tier: offsets, leader epochs, state, size, and whether they are of the log's lineage:\n"
    "`yes`, `part` (some of its offsets are), `no`. The log's epochs are those of the replica in --dir with the\n"
    "newest epoch, or of the segments themselves.",
    [*PLACES, Option("--json", "one JSON object a partition")],
    [TOPICS],
    ["milena tier ls", "milena tier ls orders:3 --dir milena-data", "milena tier ls --tier s3://bucket/prefix"],
)
VERIFY = CommandLine(
    "tier verify",
    "Read a whole tier and compare it with its metadata topic: checksums, sizes, indexes, gaps, overlaps, files\n"
    "without metadata and metadata without files. Nothing is changed. Ends with code 1 where something is found.\n"
    "Without --dir the segments are taken for what their files say.",
    [*PLACES, Option("--json", "the findings as one JSON object")],
    [TOPICS],
    ["milena tier verify --dir milena-data", "milena tier verify --tier /mnt/tier --dir /var/lib/broker-1 --json"],
)


def main(arguments: Sequence[str]) -> int:
    commands: dict[str, tuple[CommandLine, Body]] = {"ls": (LIST, _list), "verify": (VERIFY, _verify)}
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: milena tier COMMAND [options]\n")
        print(
            "\n".join(f"  {word:<10}{line.about.split('. ')[0].split(': ')[0]}" for word, (line, _) in commands.items())
        )
        return 0
    word, *rest = arguments
    if word not in commands:
        raise UsageError(f"no command `tier {word}`{nearest(word, list(commands))}")
    line, body = commands[word]
    values = line.parse(rest)
    if values.help:
        print(line.help())
        return 0
    return body(values)


def _list(values: Values) -> int:
    from milena.tier import listing
    from milena.tier.places import run

    return run(values, partial(listing.show, values))


def _verify(values: Values) -> int:
    from milena.tier import verifying
    from milena.tier.places import run

    return run(values, partial(verifying.verify_all, values))
