"""Cuts links between nodes with nftables: the network namespace of a node drops packets from the addresses of peers.

Clients have other addresses, and are not affected. Needs root, nft and nsenter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from typing import Final

from milena.command_line.errors import UserError

TABLE: Final = "inet milena_chaos"
LIMIT: Final = 30


def missing() -> str | None:
    """The reason why no link can be cut here; None if links can be cut."""
    if os.geteuid():
        return "only root can enter the network of another process"
    absent = [name for name in ("nft", "nsenter") if shutil.which(name) is None]
    return f"{' and '.join(absent)} is not installed (Debian: nftables, util-linux)" if absent else None


def ruleset(addresses: Collection[str]) -> str:
    """Rules for nft that drop packets from ``addresses``, and replace all former rules in one transaction, so that no
    packet passes in between."""
    cleared = f"add table {TABLE}\ndelete table {TABLE}\n"
    if not addresses:
        return cleared
    listed = ", ".join(sorted(addresses))
    return (
        f"{cleared}"
        f"add table {TABLE}\n"
        f"add chain {TABLE} input {{ type filter hook input priority 0; }}\n"
        f"add rule {TABLE} input ip saddr {{ {listed} }} counter drop\n"
    )


def inside(process: int) -> list[str]:
    """The words before a command that run it in the network namespace of a process."""
    return ["nsenter", "--target", str(process), "--net", "--"]


def drop_from(network: Sequence[str], addresses: Collection[str]) -> None:
    """Drop packets from ``addresses``, and from no others, in the namespace that the words ``network`` enter.

    Raises UserError.
    """
    command = [*network, "nft", "--file", "-"]
    done = subprocess.run(command, input=ruleset(addresses), capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise UserError(f"{' '.join(command)}: {done.stderr.strip()}")
