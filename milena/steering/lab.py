"""What a node of a lab has that others have not: links to cut, a disk that can lose power, a socket to its verbs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NoReturn, Protocol

from milena.config.node_config import NodeConfig
from milena.node.links.links import Links
from milena.node.metadata.image import MetadataImage
from milena.node.serving.verbs import VerbError, Verbs
from milena.runtime.context import Runtime
from milena.runtime.power_loss import LossyDisk
from milena.steering.listener import VerbListener
from milena.up.layout import ClusterDir

POWER_OFF_EXIT: Final = 70


class Role(Protocol):
    """A broker or a controller."""

    @property
    def ready(self) -> bool: ...

    @property
    def verbs(self) -> Verbs: ...


class Lab:
    """Of one node's process."""

    def __init__(self, cluster: ClusterDir, config: NodeConfig, runtime: Runtime) -> None:
        self._config = config
        self._images: list[Callable[[], MetadataImage]] = []
        self._verbs: dict[str, Verbs] = {}
        name = f"{'broker' if config.is_broker else 'controller'}-{config.node_id}"
        self._disk = LossyDisk(os.path.join(cluster.folder(name), "spare"))
        links = Links(runtime.network, runtime.clock, self._node_at)
        self.runtime = replace(runtime, network=links, disk=self._disk)
        """The ports that the node is to use."""
        self._listener = VerbListener(cluster.socket(name), self._verbs, runtime.new_tasks("verbs"))

    async def open(self, name: str, role: Role, image: Callable[[], MetadataImage]) -> None:
        """A role has been made: it can be asked from now on. ``image`` is called while it is ready. Raises OSError."""

        def ready() -> dict[str, bool]:
            """whether the node serves"""
            return {"ready": role.ready}

        verbs = role.verbs
        verbs.add("power_off", self._power_off)
        verbs.add("fail_disk", self._fail_disk)
        verbs.add("ready", ready)
        self._images.append(lambda: image() if role.ready else MetadataImage())
        self._verbs[name] = verbs
        if len(self._verbs) == 1:
            await self._listener.start()

    async def close(self) -> None:
        await self._listener.stop()
        self._disk.close()

    def _power_off(self) -> NoReturn:
        """end at once, with the files as a loss of power leaves them: without what was not synced"""
        self._disk.cut()
        os._exit(POWER_OFF_EXIT)

    def _fail_disk(self, path: str) -> dict[str, str]:
        """let every call on the disk of this log directory fail, until the process ends"""
        if path not in (known := [str(directory) for directory in self._config.log_dirs]):
            raise VerbError(f"{path} is none of the log directories {', '.join(known)}")
        self._disk.fail(path)
        return {"failing": path}

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
