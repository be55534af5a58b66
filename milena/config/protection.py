"""Settings that protect a Kafka cluster and that Milena does not support yet: authorizers, TLS and SASL.

A node does not start where Kafka would protect something and Milena would not. Listeners with TLS or SASL are refused
where listeners are read (``milena.commands.node``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from milena.config.sources import Settings
from milena.config.values import ConfigError

AUTHORIZER: Final = "authorizer.class.name"
ALLOWED: Final = "allow.everyone.if.no.acl.found"
OF_KAFKA: Final = frozenset(
    {
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "kafka.security.auth.SimpleAclAuthorizer",
    }
)
"""Kafka's authorizers, of all releases. Others need not obey ``allow.everyone.if.no.acl.found``."""
UNPROTECTED: Final = "MILENA_UNPROTECTED"
"""The variable with which a node starts in spite of a configured authorizer, if it is ``1`` or ``true``."""
SECURITY_KEYS: Final = re.compile(
    r"(listener\.name\.[^.]+\.)?((ssl|sasl|delegation\.token)\..+|([a-z0-9-]+\.)?sasl\.jaas\.config|security\.providers|"
    r"principal\.builder\.class|connections\.max\.reauth\.ms|super\.users|allow\.everyone\.if\.no\.acl\.found|"
    r"authorizer\.class\.name)"
)
"""Keys of TLS, SASL and ACLs."""


def check_authorizer(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raises ConfigError if an authorizer is configured that Kafka would enforce, unless the user accepts that Milena
    does not."""
    setting = settings.get(AUTHORIZER)
    name = "" if setting is None else setting.value.strip()
    if setting is None or not name or environment.get(UNPROTECTED, "").strip().lower() in ("1", "true"):
        return
    advice = f"accept it with {ALLOWED}=true or the variable {UNPROTECTED}=1"
    if name not in OF_KAFKA:
        advice = f"accept it with the variable {UNPROTECTED}=1"
    elif ALLOWED in settings and settings[ALLOWED].value.strip().lower() == "true":
        return
    raise ConfigError(
        f"{setting.source}: {AUTHORIZER}={name}: authorizers are not supported yet, so every client could do "
        f"everything. Remove the key, or {advice}"
    )


def has_authorizer(settings: Settings) -> bool:
    """Return whether an authorizer is configured."""
    return AUTHORIZER in settings and bool(settings[AUTHORIZER].value.strip())


def security_keys(names: Iterable[str]) -> list[str]:
    """Return the keys of TLS, SASL and ACLs among ``names``."""
    return [name for name in names if SECURITY_KEYS.fullmatch(name)]


def warning(settings: Settings) -> str | None:
    """Return the one warning about settings that do not protect this node, or None."""
    names = security_keys(settings)
    if not names:
        return None
    shown = "; ".join(f"{settings[name].source}: {name}" for name in names)
    if has_authorizer(settings):
        return f"no protection: every client may do everything, and ACLs cannot be created; without effect: {shown}"
    return f"keys of TLS, SASL and ACLs, without effect on PLAINTEXT listeners and without an authorizer: {shown}"
