"""The additional parts of a node in a lab: links to cut, a disk that can lose power, be full or slow, a clock that
jumps, faults of its tier, and a socket for lab commands."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, NoReturn, Protocol

from milena.config.node_config import NodeConfig
from milena.config.values import ConfigError
from milena.node.links.links import Links
from milena.node.metadata.image import MetadataImage
from milena.node.rules.rules import Rules
from milena.node.serving.lab_commands import LabCommand, LabCommandError, LabCommands
from milena.runtime.context import Runtime
from milena.runtime.faults.power_loss import LossyDisk
from milena.runtime.faults.shifted_clock import ShiftedClock
from milena.steering.listener import CommandListener
from milena.steering.tier_troubles import TierTroubles
from milena.up.layout import ClusterDir

POWER_OFF_EXIT: Final = 70
LONGEST_MS: Final = 60_000
"""The limit of added delays: a node must be able to stop within the time that its supervisor grants."""
LATEST_MS: Final = 1 << 52
"""The limit of the wall clock: more than any test needs, and within what every client can read."""


class Role(Protocol):
    """A broker or a controller."""

    @property
    def ready(self) -> bool: ...

    @property
    def lab_commands(self) -> LabCommands: ...


class Lab:
    """The lab facilities of one node's process."""

    def __init__(
        self,
        cluster: ClusterDir,
        config: NodeConfig,
        runtime: Runtime,
        halt: Callable[[], Awaitable[None]],
        start: Callable[[Runtime], Awaitable[None]],
    ) -> None:
        """``cluster``: the folder for the socket and the spare files. ``halt`` stops the node's roles, leaving the log
        directories as they are, and ``start`` starts them again. Raises OSError, ConfigError."""
        self._config = config
        self._halt_roles = halt
        self._start_roles = start
        self._images: list[Callable[[], MetadataImage]] = []
        self._commands: dict[str, LabCommands] = {}
        self._listens = False
        name = f"{'broker' if config.is_broker else 'controller'}-{config.node_id}"
        spare = os.path.join(cluster.folder(name), "spare")
        self._disk = LossyDisk(spare, (*config.log_dirs, config.metadata_log_dir))
        _check_links(spare, config.log_dirs)
        self._clock = ShiftedClock(runtime.clock)
        self._tier = TierTroubles(runtime, os.path.join(cluster.folder(name), "lost-objects"))
        self._network = Links(runtime.network, runtime.clock, self._node_at)
        self.runtime = replace(
            runtime,
            clock=self._clock,
            network=self._network,
            disk=self._disk,
            tier_disk=self._tier.disk,
            connect_store=self._tier.connect_store,
            lab=True,
        )
        """The ports that the node must use."""
        self._listener = CommandListener(cluster.socket(name), self._commands, runtime.new_tasks("commands"))

    async def open(self, name: str, role: Role, image: Callable[[], MetadataImage]) -> None:
        """Make a role's commands available. ``image`` is called while the role is ready. Raises OSError."""

        def ready() -> dict[str, bool]:
            return {"ready": role.ready}

        commands = role.lab_commands
        own: dict[str, LabCommand] = {
            "power_off": self._power_off,
            "fail_disk": self._fail_disk,
            "fill_disk": self._fill_disk,
            "slow_disk": self._slow_disk,
            "jump_clock": self._jump_clock,
            "troubles": self._troubles,
            "faults": self._faults,
            "mend": self._mend,
            "halt": self._halt,
            "reopen": self._reopen,
            "ready": ready,
        }
        if name == "broker":
            own |= {"break_tier": self._break_tier, "lost_objects": self._lost_objects}
        for command, function in own.items():
            commands.add(command, function)
        self._images.append(lambda: image() if role.ready else MetadataImage())
        self._commands[name] = commands
        if not self._listens:
            self._listens = True
            await self._listener.start()

    async def close(self) -> None:
        await self._listener.stop()
        self._disk.close()
        self._tier.disk.close()

    def _power_off(self) -> NoReturn:
        self._disk.cut()
        os._exit(POWER_OFF_EXIT)

    async def _halt(self) -> dict[str, bool]:
        """Stop the roles and close all files without writing to them. This socket stays, for `reopen`."""
        await self._mend()
        for role in self._commands:  # commands of the roles would use closed files
            self._commands[role] = self._commands_while_halted()
        await self._halt_roles()
        self._images.clear()
        for disk in (self._disk, self._tier.disk):  # a thread may still work on a file
            await asyncio.get_running_loop().run_in_executor(None, disk.close)
        self._disk.begin_again()
        return {"halted": True}

    def _commands_while_halted(self) -> LabCommands:
        own: dict[str, LabCommand] = {"reopen": self._reopen, "ready": lambda: {"ready": False}}
        return LabCommands(Rules(self._clock), own, [])

    async def _reopen(self) -> dict[str, bool]:
        """Start the roles again after `halt`, with what is in the log directories now."""
        await self._start_roles(self.runtime)
        return {"ready": True}

    async def _mend(self) -> dict[str, bool]:
        for name, commands in self._commands.items():
            if name == "broker":  # a topic that a client creates would come after the reset
                commands.drop_held()
            await commands.call("clear")
        self._network.heal()
        self._clock.ahead_ms = 0
        self._disk.faults.end_delays()
        self._tier.set(away=False, delay=0, lose=0)
        self._tier.forget_lost()
        return {"needs_restart": self._disk.faults.lasting}

    def _fail_disk(self, path: str) -> dict[str, str]:
        self._disk.faults.fail(self._log_dir(path))
        return {"failing": path}

    def _fill_disk(self, path: str | None = None) -> dict[str, str]:
        full = self._log_dir(self._config.log_dirs[-1] if path is None else path)
        self._disk.faults.fill(full)
        return {"full": full}

    def _slow_disk(self, ms: float, path: str | None = None) -> dict[str, object]:
        if not 0 <= ms <= LONGEST_MS:
            raise LabCommandError(f"ms={ms}: not between 0 and {LONGEST_MS}")
        slow = list(self._config.log_dirs) if path is None else [self._log_dir(path)]
        for folder in slow:
            self._disk.faults.slow(folder, ms / 1000)
        return {"slow": slow, "ms": ms}

    def _log_dir(self, path: str) -> str:
        if path not in (known := [str(directory) for directory in self._config.log_dirs]):
            raise LabCommandError(f"{path} is not one of the log directories {', '.join(known)}")
        return path

    def _jump_clock(self, ms: int) -> dict[str, int]:
        now = self._clock.time_ms() - self._clock.ahead_ms
        if not 0 <= now + ms < LATEST_MS:
            raise LabCommandError(f"ms={ms}: out of range")
        self._clock.ahead_ms = ms
        return {"time_ms": now + ms}

    def _troubles(self) -> dict[str, int]:
        disk, tier = self._disk.faults, self._tier
        return {
            "wall_ms": self._clock.time_ms(),
            "failed": disk.failed,
            "slowed": disk.slowed,
            "tier_failed": tier.failed,
            "tier_odd": tier.odd,
            "tier_slowed": tier.disk.slowed,
            "tier_lost": len(tier.lost),
        }

    def _faults(self) -> list[dict[str, object]]:
        ahead = self._clock.ahead_ms
        clock: list[dict[str, object]] = [{"command": "jump_clock", "ms": ahead}] if ahead else []
        return [*self._disk.faults.active(), *clock, *self._tier.active()]

    def _break_tier(self, away: bool = False, delay_ms: float = 0, lose: float = 0, odd: str = "") -> dict[str, object]:
        if not self._config.get_bool("remote.log.storage.system.enable"):
            raise LabCommandError("this broker has no remote tier (remote.log.storage.system.enable)")
        if not 0 <= delay_ms <= LONGEST_MS:
            raise LabCommandError(f"delay_ms={delay_ms}: not between 0 and {LONGEST_MS}")
        if not 0 <= lose <= 1:
            raise LabCommandError(f"lose={lose}: not between 0 and 1")
        self._tier.set(away=away, delay=delay_ms / 1000, lose=lose, odd=odd)
        return {"away": away, "delay_ms": delay_ms, "lose": lose, "odd": odd}

    def _lost_objects(self) -> list[str]:
        return list(self._tier.lost)

    def _node_at(self, host: str, port: int) -> int | None:
        """Return the node with this address, by configuration and metadata; None if it is unknown."""
        for node, address in self._config.quorum_voters.items():
            if address == (host, port):
                return int(node)
        for image in self._images:
            for broker in image().brokers.values():
                if any((one.host, one.port) == (host, port) for one in broker.endpoints):
                    return int(broker.id)
        return None


def _check_links(spare: str, log_dirs: Sequence[str]) -> None:
    """Check that ``spare`` can hold second names of the log directories' files. Raises ConfigError, OSError."""
    for log_dir in log_dirs:
        os.makedirs(log_dir, exist_ok=True)
        if os.stat(log_dir).st_dev != os.stat(spare).st_dev:
            raise ConfigError(f"{spare} of the lab is on another file system than the log directory {log_dir}")
