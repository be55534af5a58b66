"""`milena tier`: list, show, fetch, verify, restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from milena.command_line.choosing import chosen
from milena.command_line.options import CommandLine, Option, Positional, Values, key_value
from milena.commands.tier.places import PLACES, STORAGE_OPTIONS
from milena.up.command import COMMAND as UP
from milena.up.layout import DEFAULT_DIR

Body: TypeAlias = Callable[[Values], int]
TAKEN = ("--brokers", "--port", "--host", "--advertised-host", "--cluster-id", "--override")
"""Options of `milena up` that a later start keeps."""
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
    "without metadata and metadata without files, and what is left of topics that the cluster in --dir does not have\n"
    "any more. Nothing is changed. Ends with code 1 where something is found.\n"
    "Without --dir the segments are taken for what their files say.",
    [*PLACES, Option("--json", "the findings as one JSON object")],
    [TOPICS],
    ["milena tier verify --dir milena-data", "milena tier verify --tier /mnt/tier --dir /var/lib/broker-1 --json"],
)
SHOW = CommandLine(
    "tier show",
    "Show one segment: what the metadata topic told of it, its files, what its log holds.",
    [*PLACES, Option("--json", "as one JSON object")],
    [Positional("SEGMENT", "its id, or how that begins")],
    ["milena tier show EvvZttkvQ0eZTcelvNVn5Q"],
)
FETCH = CommandLine(
    "tier fetch",
    "Print records from the tier, one value a line: those of a segment, or of a partition from the segments that\n"
    "serve them under its leader epochs. With --out copy a segment's log to a file.",
    [
        *PLACES,
        Option("--from-offset", "begin here", "N", convert=int),
        Option("--to-offset", "and end here", "N", convert=int),
        Option("--json", "everything about a record, as one JSON object a line"),
        Option(
            "--out",
            "the file to write, which `milena log dump` reads where its name ends in .log",
            "FILE",
            convert=os.path.abspath,
        ),
    ],
    [Positional("WHAT", "a segment's id, or how that begins; or TOPIC:PARTITION")],
    ["milena tier fetch orders:0 --from-offset 100 --to-offset 199", "milena tier fetch EvvZttkv --out 0.log"],
)
RESTORE = CommandLine(
    "tier restore",
    "Make the directory of a new cluster, whose topics are those of a tier that is left of an old one. `milena up`\n"
    "then starts it, and its topics can be read from their first offsets. The tier stays where it is and belongs to\n"
    "the new cluster from then on: no other may use it any more.",
    [
        Option("--tier", "the tier: a folder, or a URL for fsspec; DIR/remote without it", "PLACE"),
        STORAGE_OPTIONS,
        Option("--dir", "the new cluster's directory", "DIR", default=DEFAULT_DIR),
        Option(
            "--metadata",
            "what is left of the old cluster: its directory, or a broker's. What it does not tell, or "
            "everything without it, comes from the tier's files",
            "DIR",
            many=True,
        ),
        Option("--topic", "these topics alone; with ID where there are several of the name", "NAME[=ID]", many=True),
        Option(
            "--partitions",
            "how many a topic has, where its last ones were empty",
            "NAME=N",
            many=True,
            convert=key_value,
        ),
        Option("--config", "a configuration of the topics, under Kafka's name", "K=V", many=True, convert=key_value),
        Option("--replicas", "how many of each partition; 3, or as many as there are brokers", "N", convert=int),
        Option("--skip-gaps", "begin behind offsets that are in no segment; what is before them will be deleted"),
        *[option for option in UP.options if option.name in TAKEN],
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
    from milena.commands.tier.places import run

    return run(values, partial(listing.show, values))


def _show(values: Values) -> int:
    from milena.commands.tier import segment_view
    from milena.commands.tier.places import run

    return run(values, partial(segment_view.show, values))


def _fetch(values: Values) -> int:
    from milena.commands.tier import fetching
    from milena.commands.tier.places import run

    return run(values, partial(fetching.fetch, values))


def _verify(values: Values) -> int:
    from milena.commands.tier import verifying
    from milena.commands.tier.places import run

    return run(values, partial(verifying.verify_all, values))


def _restore(values: Values) -> int:
    from milena.commands.tier.restore import restore

    return restore(values)
