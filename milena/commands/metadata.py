"""`milena metadata`: check and repair the metadata log of a stopped node."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from milena.command_line.errors import UserError, reason_of
from milena.command_line.options import CommandLine, Option, Positional, Values, chosen

PLACE = Positional("FOLDER", "a __cluster_metadata-0 folder, or the log directory that holds it")
CHECK = CommandLine(
    "metadata check",
    "Read a metadata log and print which offsets are intact and where it is damaged. Nothing is "
    "changed. The exit code\n"
    "is 1 if records are lost that no snapshot covers.",
    [],
    [PLACE],
    ["milena metadata check milena-data/controller-100/data"],
)
REPAIR = CommandLine(
    "metadata repair",
    "Repair the metadata log of a stopped node. Damaged and missing records, and a missing snapshot, are copied from\n"
    "other nodes: each broker of the cluster has a copy of the log. If no copy has them, --cut ends "
    "the log before them:\n"
    "topics, configurations and registrations from there on are lost, and brokers that know of them log that and\n"
    "wait. The former files are kept as *.log.damaged.",
    [
        Option(
            "--from", "a copy: another node's __cluster_metadata-0 folder, or its log directory", "FOLDER", many=True
        ),
        Option("--cut", "discard the records that no copy has, and everything after them"),
    ],
    [PLACE],
    [
        "milena metadata repair milena-data/controller-100/data --from milena-data/broker-1/data",
        "milena metadata repair milena-data/controller-100/data --cut",
    ],
)


def main(arguments: Sequence[str]) -> int:
    commands: dict[str, tuple[CommandLine, Callable[[Values], int]]] = {
        "check": (CHECK, _check),
        "repair": (REPAIR, _repair),
    }
    meant = chosen("metadata", commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    try:
        return body(values)
    except OSError as error:
        raise UserError(reason_of(error)) from None


def _check(values: Values) -> int:
    from milena.controller.log.log_damage import MetadataLost, judge
    from milena.controller.log.log_repair import committed, inspect
    from milena.protocol.types import Offset
    from milena.runtime.files import RealDisk

    folder, disk = _folder(values.folder), RealDisk()
    found = inspect(disk, folder)
    for reason in found.damaged.values():
        print(f"damaged: {folder}/{reason}")
    for damage in found.survey.damages:
        print(f"damaged: {damage.path} at byte {damage.position}, from offset {damage.offset} on: {damage.reason}")
    for run in found.survey.runs:
        print(f"intact: offsets {run.start} to {run.end - 1}")
    if found.latest is not None:
        print(f"snapshot: {found.latest.file_name}, covers the records before offset {found.start}")
    try:
        judge(found.survey, folder, found.start, committed(disk, folder, found) or Offset(0))
    except MetadataLost as lost:
        print(lost)
        return 1
    return 0


def _repair(values: Values) -> int:
    from milena.controller.log.log_repair import RepairRefused, repair
    from milena.runtime.files import RealDisk

    copies = [_folder(path) for path in getattr(values, "from")]
    try:
        repair(RealDisk(), _folder(values.folder), copies, cut=values.cut, say=print)
    except RepairRefused as refused:
        raise UserError(str(refused)) from None
    return 0


def _folder(path: str) -> str:
    """Return the folder of the metadata log at a path. Raises UserError."""
    from milena.protocol.types import METADATA_TOPIC

    name = f"{METADATA_TOPIC}-0"
    path = os.path.abspath(path)
    found = path if os.path.basename(path) == name else os.path.join(path, name)
    if not os.path.isdir(found):
        raise UserError(f"{found}: no such folder")
    return found
