"""`milena tier`: list, show, fetch, verify, restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from milena.command_line.options import CommandLine, Option, Positional, Values, chosen, key_value
from milena.commands.tier.opening import PLACES, STORAGE_OPTIONS
from milena.up.command import COMMAND as UP
from milena.up.layout import DEFAULT_DIR

Body: TypeAlias = Callable[[Values], int]
UP_OPTIONS = ("--brokers", "--port", "--host", "--advertised-host", "--cluster-id", "--override")
"""The options of `milena up` that `milena tier restore` also accepts; later starts of the cluster use them."""
TOPICS = Positional("TOPIC", "topics, or partitions as TOPIC:PARTITION (default: all)", many=True)

LIST = CommandLine(
    "tier ls",
    "List the segments in a tier: offsets, leader epochs, state, size, and whether their offsets belong to the log:\n"
    "`yes`, `part` (some of them), `no`, by the leader epochs of the log. These are from the replica "
    "in --dir with the\n"
    "newest epoch, or from the segments themselves.",
    [*PLACES, Option("--json", "print one JSON object per partition")],
    [TOPICS],
    ["milena tier ls", "milena tier ls orders:3 --dir milena-data", "milena tier ls --tier s3://bucket/prefix"],
)
VERIFY = CommandLine(
    "tier verify",
    "Read a whole tier and compare it with its metadata topic: checksums, sizes, indexes, gaps, overlaps, files\n"
    "without metadata and metadata without files, and remains of topics that the cluster in --dir no longer\n"
    "has. Nothing is changed. The exit code is 1 if there are findings.\n"
    "Without --dir only the files are checked.",
    [*PLACES, Option("--json", "print the findings as one JSON object")],
    [TOPICS],
    ["milena tier verify --dir milena-data", "milena tier verify --tier /mnt/tier --dir /var/lib/broker-1 --json"],
)
SHOW = CommandLine(
    "tier show",
    "Show one segment: its events in the metadata topic, its files, the content of its log.",
    [*PLACES, Option("--json", "print one JSON object")],
    [Positional("SEGMENT", "its id, or a prefix of it")],
    ["milena tier show EvvZttkvQ0eZTcelvNVn5Q"],
)
FETCH = CommandLine(
    "tier fetch",
    "Print records from the tier, one value per line: those of a segment, or of a partition from the segments that\n"
    "serve them under its leader epochs. With --out, copy a segment's log to a file.",
    [
        *PLACES,
        Option("--from-offset", "first offset", "N", convert=int),
        Option("--to-offset", "last offset", "N", convert=int),
        Option("--json", "print each record as one JSON object per line"),
        Option(
            "--out",
            "the file to write; `milena log dump` can read it if its name ends with .log",
            "FILE",
            convert=os.path.abspath,
        ),
    ],
    [Positional("WHAT", "a segment's id, or a prefix of it; or TOPIC:PARTITION")],
    ["milena tier fetch orders:0 --from-offset 100 --to-offset 199", "milena tier fetch EvvZttkv --out 0.log"],
)
RESTORE = CommandLine(
    "tier restore",
    "Create the directory of a new cluster with the topics of a tier whose cluster is lost. `milena "
    "up` then starts it,\n"
    "and its topics can be read from their first offsets. The tier is not copied, and belongs to the new cluster from\n"
    "then on: no other cluster may use it.",
    [
        Option("--tier", "the tier: a folder, or a URL for fsspec (default: DIR/remote)", "PLACE"),
        STORAGE_OPTIONS,
        Option("--dir", "the new cluster's directory", "DIR", default=DEFAULT_DIR),
        Option(
            "--metadata",
            "remains of the old cluster: its directory, or a broker's. Missing information, or all of it without "
            "this option, is taken from the tier's files",
            "DIR",
            many=True,
        ),
        Option("--topic", "only these topics; with ID if several have the name", "NAME[=ID]", many=True),
        Option(
            "--partitions",
            "number of partitions of a topic whose last ones were empty",
            "NAME=N",
            many=True,
            convert=key_value,
        ),
        Option("--config", "a configuration of the topics, by Kafka's key", "K=V", many=True, convert=key_value),
        Option("--replicas", "replicas of each partition (default: 3, or the number of brokers)", "N", convert=int),
        Option("--skip-gaps", "start after offsets that are in no segment; earlier records will be deleted"),
        *[option for option in UP.options if option.name in UP_OPTIONS],
    ],
    examples=[
        "milena tier restore --tier /mnt/tier --dir again && milena up --dir again",
        "milena tier restore --tier s3://bucket/prefix --dir again --metadata /backup/broker-1",
    ],
)


def main(arguments: Sequence[str]) -> int:
    commands: dict[str, tuple[CommandLine, Body]] = {
        "ls": (LIST, _list),
        "show": (SHOW, _show),
        "fetch": (FETCH, _fetch),
        "verify": (VERIFY, _verify),
        "restore": (RESTORE, _restore),
    }
    meant = chosen("tier", commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    return body(values)


def _list(values: Values) -> int:
    from milena.commands.tier import listing
    from milena.commands.tier.opening import run

    return run(values, partial(listing.show, values))


def _show(values: Values) -> int:
    from milena.commands.tier import segment_view
    from milena.commands.tier.opening import run

    return run(values, partial(segment_view.show, values))


def _fetch(values: Values) -> int:
    from milena.commands.tier import fetching
    from milena.commands.tier.opening import run

    return run(values, partial(fetching.fetch, values))


def _verify(values: Values) -> int:
    from milena.commands.tier import verifying
    from milena.commands.tier.opening import run

    return run(values, partial(verifying.verify_all, values))


def _restore(values: Values) -> int:
    from milena.commands.tier.restore import restore

    return restore(values)
