"""What a node of a lab has that others have not: links to cut, a disk that can lose power, be full or slow, a clock
that jumps, a tier in trouble, and a socket to its verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NoReturn, Protocol

from milena.config.node_config import NodeConfig
from milena.config.values import ConfigError
from milena.node.links.links import Links
from milena.node.metadata.image import MetadataImage
from milena.node.serving.verbs import Verb, VerbError, Verbs
from milena.runtime.context import Runtime
from milena.runtime.faults.power_loss import LossyDisk
from milena.runtime.faults.shifted_clock import ShiftedClock
from milena.steering.listener import VerbListener
from milena.steering.tier_troubles import TierTroubles
from milena.up.layout import ClusterDir

POWER_OFF_EXIT: Final = 70
LONGEST_MS: Final = 60_000
"""Of what is made slower: a node has to end within the time that its engine or supervisor grants."""
LATEST_MS: Final = 1 << 52
"""Of the wall clock: far beyond what a test needs, and what every client can read."""


class Role(Protocol):
    """A broker or a controller."""

    @property
    def ready(self) -> bool: ...

    @property
    def verbs(self) -> Verbs: ...


class Lab:
    """Of one node's process."""

    def __init__(self, cluster: ClusterDir, config: NodeConfig, runtime: Runtime) -> None:
        """``cluster``: where the socket and the spare files go. Raises OSError, ConfigError."""
        self._config = config
        self._images: list[Callable[[], MetadataImage]] = []
        self._verbs: dict[str, Verbs] = {}
        name = f"{'broker' if config.is_broker else 'controller'}-{config.node_id}"
        spare = os.path.join(cluster.folder(name), "spare")
        self._disk = LossyDisk(spare)
        _check_links(spare, config.log_dirs)
        self._clock = ShiftedClock(runtime.clock)
        self._tier = TierTroubles(runtime, os.path.join(cluster.folder(name), "lost-objects"))
        self.runtime = replace(
            runtime,
            clock=self._clock,
            network=Links(runtime.network, runtime.clock, self._node_at),
            disk=self._disk,
            tier_disk=self._tier.disk,
            connect_store=self._tier.connect_store,
        )
        """The ports that the node is to use."""
        self._listener = VerbListener(cluster.socket(name), self._verbs, runtime.new_tasks("verbs"))

    async def open(self, name: str, role: Role, image: Callable[[], MetadataImage]) -> None:
        """A role has been made: it can be asked from now on. ``image`` is called while it is ready. Raises OSError."""

        def ready() -> dict[str, bool]:
            """whether the node serves"""
            return {"ready": role.ready}

        verbs = role.verbs
        own: dict[str, Verb] = {
            "power_off": self._power_off,
            "fail_disk": self._fail_disk,
            "fill_disk": self._fill_disk,
            "slow_disk": self._slow_disk,
            "jump_clock": self._jump_clock,
            "troubles": self._troubles,
            "ready": ready,
        }
        if name == "broker":
            own |= {"break_tier": self._break_tier, "lost_objects": self._lost_objects}
        for verb, function in own.items():
            verbs.add(verb, function)
        self._images.append(lambda: image() if role.ready else MetadataImage())
        self._verbs[name] = verbs
        if len(self._verbs) == 1:
            await self._listener.start()

    async def close(self) -> None:
        await self._listener.stop()
        self._disk.close()
        self._tier.disk.close()

    def _power_off(self) -> NoReturn:
        """end at once, with the files as a loss of power leaves them: without what was not synced"""
        self._disk.cut()
        os._exit(POWER_OFF_EXIT)

    def _fail_disk(self, path: str) -> dict[str, str]:
        """let every call on the disk of this log directory fail, until the process ends"""
        self._disk.faults.fail(self._log_dir(path))
        return {"failing": path}

    def _fill_disk(self, path: str | None = None) -> dict[str, str]:
        """let a log directory (without path the last one) be full until the process ends: ENOSPC for what is added"""
        full = self._log_dir(self._config.log_dirs[-1] if path is None else path)
        self._disk.faults.fill(full)
        return {"full": full}

    def _slow_disk(self, ms: float, path: str | None = None) -> dict[str, object]:
        """let each sync below this log directory, or all, take so much longer; 0: no longer"""
        if not 0 <= ms <= LONGEST_MS:
            raise VerbError(f"ms={ms}: not between 0 and {LONGEST_MS}")
        slow = list(self._config.log_dirs) if path is None else [self._log_dir(path)]
        for folder in slow:
            self._disk.faults.slow(folder, ms / 1000)
        return {"slow": slow, "ms": ms}

    def _log_dir(self, path: str) -> str:
        if path not in (known := [str(directory) for directory in self._config.log_dirs]):
            raise VerbError(f"{path} is none of the log directories {', '.join(known)}")
        return path

    def _jump_clock(self, ms: int) -> dict[str, int]:
        """set the wall clock so far ahead of the machine's, or behind it if negative; 0: right again"""
        now = self._clock.time_ms() - self._clock.ahead_ms
        if not 0 <= now + ms < LATEST_MS:
            raise VerbError(f"ms={ms}: there is no such time")
        self._clock.ahead_ms = ms
        return {"time_ms": now + ms}

    def _troubles(self) -> dict[str, int]:
        """the wall clock, and how many calls of the disk and of the tier were made to fail, to wait, or for nothing"""
        disk, tier = self._disk.faults, self._tier
        return {
            "wall_ms": self._clock.time_ms(),
            "failed": disk.failed,
            "slowed": disk.slowed,
            "tier_failed": tier.failed,
            "tier_slowed": tier.disk.slowed,
            "tier_lost": len(tier.lost),
        }

    def _break_tier(self, away: bool = False, delay_ms: float = 0, lose: float = 0) -> dict[str, object]:
        """let the remote tier fail in each call, be slower in each, or lose this share (0 to 1) of the new segments'
        logs; without arguments: it works again, and what was lost stays so"""
        if not self._config.get_bool("remote.log.storage.system.enable"):
            raise VerbError("this broker has no remote tier (remote.log.storage.system.enable)")
        if not 0 <= delay_ms <= LONGEST_MS:
            raise VerbError(f"delay_ms={delay_ms}: not between 0 and {LONGEST_MS}")
        if not 0 <= lose <= 1:
            raise VerbError(f"lose={lose}: not between 0 and 1")
        self._tier.set(away=away, delay=delay_ms / 1000, lose=lose)
        return {"away": away, "delay_ms": delay_ms, "lose": lose}

    def _lost_objects(self) -> list[str]:
        """the paths of the objects of the tier that break_tier has lost at this broker"""
        return list(self._tier.lost)

    def _node_at(self, host: str, port: int) -> int | None:
        """The node that is reached at an address, as far as the configuration and the metadata tell."""
        for node, address in self._config.quorum_voters.items():
            if address == (host, port):
                return int(node)
        for image in self._images:
            for broker in image().brokers.values():
                if any((one.host, one.port) == (host, port) for one in broker.endpoints):
                    return int(broker.id)
        return None


def _check_links(spare: str, log_dirs: Sequence[str]) -> None:
    """What a loss of power brings back has a second name in ``spare``. Raises ConfigError, OSError."""
    for log_dir in log_dirs:
        os.makedirs(log_dir, exist_ok=True)
        if os.stat(log_dir).st_dev != os.stat(spare).st_dev:
            raise ConfigError(f"{spare} of the lab is on another file system than the log directory {log_dir}")
