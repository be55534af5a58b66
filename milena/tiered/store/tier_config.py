"""Creates a broker's remote storage from Kafka's configuration keys.

``remote.log.storage.manager.class.name`` names the adapter; its own keys begin with
``remote.log.storage.manager.impl.prefix`` (``rsm.config.``) and are passed here without it:

- LocalTieredStorage, as Kafka's: ``dir``. Kafka's other keys are for its tests and have no effect.
- FsspecRemoteStorage: ``url``, ``options`` (a JSON object for the file system), ``chunk.size``, ``chunk.cache.size``
  (bytes) and ``read.ahead.chunks``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from milena import install_hint
from milena.config.values import ConfigError
from milena.runtime.context import Runtime
from milena.tiered.store.remote_storage import RemoteStorage
from milena.tiered.store.tier_identity import Claim

LOCAL: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
FSSPEC: Final = "milena.tiered.FsspecRemoteStorage"
DEFAULT_CHUNK: Final = 4 << 20
DEFAULT_CACHE: Final = 64 << 20
DEFAULT_AHEAD: Final = 6


def remote_storage(
    runtime: Runtime,
    name: str | None,
    settings: Mapping[str, str],
    owner: str,
    *,
    memory: str | None = None,
    claim: Claim | None = None,
) -> RemoteStorage:
    """Return the adapter of the class ``name``, which is not started. ``owner`` is the broker's id, which marks its
    files in a shared tier. ``memory``: a file of the broker's own in which it remembers the folder.

    Raises ConfigError. The adapters are imported here: most brokers need at most one of them.
    """
    match name:
        case "" | None:
            raise ConfigError("remote.log.storage.manager.class.name is missing: tiered storage requires it")
        case _ if name == LOCAL:
            from milena.tiered.store.local_tier import LocalTier

            return LocalTier(runtime, os.path.abspath(_required(settings, "dir")), owner, memory=memory, claim=claim)
        case _ if name == FSSPEC:
            return _fsspec(runtime, settings, owner, claim)
        case _:
            raise ConfigError(f"remote.log.storage.manager.class.name={name} is not one of {LOCAL}, {FSSPEC}")


def _fsspec(runtime: Runtime, settings: Mapping[str, str], owner: str, claim: Claim | None) -> RemoteStorage:
    from importlib.util import find_spec

    from milena.tiered.store.fsspec_tier import FsspecSettings, FsspecTier

    if find_spec("fsspec") is None:
        raise ConfigError(f"{FSSPEC} needs the package fsspec: pip install {install_hint('fsspec')}")
    chunk = _number(settings, "chunk.size", DEFAULT_CHUNK, at_least=1)
    found = FsspecSettings(
        url=_required(settings, "url"),
        options=_options(settings.get("options", "")),
        chunk=chunk,
        cache=_number(settings, "chunk.cache.size", max(DEFAULT_CACHE, 4 * chunk), at_least=chunk),
        ahead=_number(settings, "read.ahead.chunks", DEFAULT_AHEAD, at_least=0),
    )
    return FsspecTier(runtime, found, owner, claim=claim)


def _required(settings: Mapping[str, str], key: str) -> str:
    value = settings.get(key, "").strip()
    if not value:
        raise ConfigError(f"{key} of the remote storage is missing (rsm.config.{key})")
    return value


def _number(settings: Mapping[str, str], key: str, default: int, *, at_least: int) -> int:
    text = settings.get(key, str(default)).strip()
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r} of the remote storage is not a number") from None
    if value < at_least:
        raise ConfigError(f"{key}={value} of the remote storage must be at least {at_least}")
    return value


def _options(text: str) -> dict[str, object]:
    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"options of the remote storage are not valid JSON: {error}") from None
    if not isinstance(options, dict):
        raise ConfigError("options of the remote storage must be a JSON object")
    return options
