"""``DIR/nodes.json``: the nodes of a cluster, their processes and addresses, updated while the cluster runs.

A list of ``{"id": 1, "roles": ["broker"], "pid": 4711, "listeners": {"PLAINTEXT": "127.0.0.1:9092"}, "log.dirs":
[...], "ready": true}``; ``pid`` is null while a node is down, ``ready`` is true while it serves.
``metrics`` is the address of its /metrics, if it serves them. Supervisor and nodes change the file under a lock, by
rename.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    Entry = TypedDict(
        "Entry",
        {
            "id": int,
            "roles": list[str],
            "pid": int | None,
            "listeners": dict[str, str],
            "log.dirs": list[str],
            "ready": bool,
            "metrics": str,
        },
        total=False,
    )


def read(path: str) -> list[Entry]:
    """Return the entries, sorted by id; an empty list if there is no file."""
    import json

    try:
        with open(path) as file:
            entries: list[Entry] = json.load(file)
    except FileNotFoundError:
        return []
    return entries


def name_of(entry: Entry) -> str:
    """Return the node's name, as in ``broker-1``."""
    return f"{entry['roles'][0]}-{entry['id']}"


def write(path: str, entries: list[Entry]) -> None:
    """Replace the whole list."""
    with _locked(path):
        _replace(path, entries)


def renew(path: str, entry: Entry) -> None:
    """Replace one node's entry."""
    _change(path, lambda entries: [*(e for e in entries if e["id"] != entry["id"]), entry])


def is_down(path: str, node_id: int) -> bool:
    """Return whether a node has no pid."""
    return any(entry["id"] == node_id and entry["pid"] is None for entry in read(path))


def mark_down(path: str, node_id: int, pid: int) -> None:
    """A process has ended: set the node's pid to null, unless it has a new process."""
    _change_process(path, node_id, pid, {"pid": None, "ready": False})


def mark_ready(path: str, node_id: int, pid: int) -> None:
    """A process serves: set ``ready``, unless the node has a new process."""
    _change_process(path, node_id, pid, {"ready": True})


def _change_process(path: str, node_id: int, pid: int, news: Entry) -> None:
    def change(entries: list[Entry]) -> list[Entry]:
        return [e | news if e["id"] == node_id and e["pid"] == pid else e for e in entries]

    _change(path, change)


def _change(path: str, change: Callable[[list[Entry]], list[Entry]]) -> None:
    with _locked(path):
        _replace(path, change(read(path)))


class _locked:
    def __init__(self, path: str) -> None:
        self._fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _replace(path: str, entries: list[Entry]) -> None:
    import json

    entries.sort(key=lambda entry: entry["id"])
    scratch = f"{path}.{os.getpid()}.tmp"
    with open(scratch, "w") as file:
        json.dump(entries, file, indent=1)
        file.write("\n")
    os.replace(scratch, path)
