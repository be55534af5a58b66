"""Variables in values, ``${PROVIDER:[PATH:]KEY}``, and the providers that resolve them (KIP-297, KIP-421; Kafka's
``AbstractConfig.resolveConfigVariables``, ``ConfigTransformer`` and its three config providers).

Kafka uses a variable that it cannot resolve literally, for example as the name of a log directory. Here it is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from milena.config.keys import DYNAMIC_KEYS, KEYS
from milena.config.sources import Setting, Settings, properties_of
from milena.config.values import ConfigError

PROVIDERS: Final = "config.providers"
PLUG_INS: Final = ("rsm.config.", "rlmm.config.")
"""Prefixes of the keys of plug-ins that Milena has."""
PLUG_IN_PREFIXES: Final = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
"""Keys whose value is the prefix of the keys of a plug-in."""
VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
"""Anything that looks like a variable; group 1 is its content."""
_PACKAGE: Final = "org.apache.kafka.common.config.provider."


class UnresolvedError(ConfigError):
    """A variable has no value. Kafka uses its text then."""


class Provider(Protocol):
    """Looks variables up. The errors and ``None`` do not contain values."""

    def get(self, path: str, key: str) -> str | None:
        """Return the value, or None if there is none. Raises ConfigError."""
        ...


class EnvironmentProvider:
    """Kafka's EnvVarConfigProvider: ``${env:NAME}``."""

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Raises ConfigError for a malformed ``allowlist.pattern``."""
        self._environment = environment
        try:
            self._allowed = re.compile(parameters.get("allowlist.pattern", ".*"), re.DOTALL)
        except re.error as error:
            raise ConfigError(f"allowlist.pattern: {error}") from None

    def get(self, path: str, key: str) -> str | None:
        if path:
            raise ConfigError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return self._environment.get(key) if self._allowed.fullmatch(key) else None


class AllowedPaths:
    """The paths that a provider may read (Kafka's AllowedPaths); all of them without ``allowed.paths``."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigError for a path that is not absolute or does not exist."""
        text = parameters.get("allowed.paths", "")
        self._paths = [os.path.normpath(path) for path in text.split(",")] if text else None
        for path in self._paths or ():
            if not os.path.isabs(path):
                raise ConfigError(f"Path {path} is not absolute")
            if not os.path.exists(path):
                raise ConfigError(f"Path {path} does not exist")

    def check(self, path: str) -> str:
        """Return the path to read. Raises ConfigError if it may not be read."""
        if self._paths is None:
            return path
        normal = os.path.normpath(path)
        if not any(normal == allowed or normal.startswith(f"{allowed.rstrip('/')}/") for allowed in self._paths):
            raise ConfigError(f"The path {path} is not allowed to be accessed")
        return normal


class FileProvider:
    """Kafka's FileConfigProvider: ``${file:PATH:KEY}``, a key of a properties file in UTF-8."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._allowed = AllowedPaths(parameters)

    def get(self, path: str, key: str) -> str | None:
        if not path:
            return None
        try:
            with open(self._allowed.check(path), encoding="utf-8") as file:
                found = properties_of(file.read(), path).get(key)
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"Could not read properties from file {path}") from None
        return None if found is None else found.value


class DirectoryProvider:
    """Kafka's DirectoryConfigProvider: ``${dir:PATH:NAME}``, the content of a file, as Kubernetes mounts secrets."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._allowed = AllowedPaths(parameters)

    def get(self, path: str, key: str) -> str | None:
        file = os.path.join(self._allowed.check(path), key)
        if not path or os.path.basename(file) != key or not os.path.isfile(file):
            return None
        try:
            with open(file, encoding="utf-8", newline="") as opened:
                return opened.read()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"Could not read file {file} for property {key}") from None


def resolve(settings: Settings, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings with the values of all variables. ``environment``: that of the process if None.

    Raises ConfigError, naming source and key, for an unknown provider class, for what a provider cannot read, and for a
    variable without a value in a key that has an effect.
    """
    if PROVIDERS not in settings and not any("${" in setting.value for setting in settings.values()):
        return settings
    providers = _providers(settings, os.environ if environment is None else environment)
    prefixes = (*PLUG_INS, *(settings[key].value.strip() for key in PLUG_IN_PREFIXES if key in settings))
    effective = tuple(filter(None, prefixes))
    resolved = dict(settings)
    for name, setting in settings.items():
        if "${" in setting.value and not name.startswith(PROVIDERS):
            try:
                resolved[name] = _resolved(name, setting, providers)
            except UnresolvedError:
                if name in KEYS or name.startswith(effective):
                    raise
    return resolved


def resolve_dynamic(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a dynamic configuration, which has providers of its own
    (``DynamicBrokerConfig.resolveVariableConfigs``). Values that cannot be resolved are left out."""
    if not any("${" in value for value in values.values()):
        return dict(values)
    settings = {name: Setting(value, "dynamic configuration") for name, value in values.items()}
    try:
        providers = _providers(settings, os.environ)
    except ConfigError:
        providers = {}
    resolved = {}
    for name, setting in settings.items():
        try:
            resolved[name] = _resolved(name, setting, providers).value
        except ConfigError:
            continue
    return resolved


def check_resolved(values: Mapping[str, str]) -> None:
    """Check the values with variables of a dynamic configuration, as the broker does to which a change is sent. Raises
    ConfigError, which shows the variable and not its value, for what ``resolve_dynamic`` leaves out."""
    if not any("${" in value for value in values.values()):
        return
    source = "dynamic configuration"
    settings = {name: Setting(value, source) for name, value in values.items()}
    try:
        providers = _providers(settings, os.environ)
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix(f"{source}: ")) from None
    for name, text in values.items():
        key = DYNAMIC_KEYS.get(name)
        if key is None or "${" not in text:
            continue
        try:
            resolved = _resolved(name, settings[name], providers).value
        except ConfigError as error:
            reason = str(error).removeprefix(f"{source}: {name}: ")
            raise ConfigError(f"Invalid value {text} for configuration {name}: {reason}") from None
        try:
            key.parse(resolved)
        except ConfigError:
            reason = f"not a valid value of type {key.type.name}"
            raise ConfigError(f"Invalid value {text} for configuration {name}: {reason}") from None


def check_dynamic_variables(name: str, text: str, values: Mapping[str, str]) -> bool:
    """Return whether a dynamic value has variables, which only the broker can resolve. Raises ConfigError if
    ``values``, the whole dynamic configuration, does not define their providers."""
    found = VARIABLE.findall(text)
    for content in found:
        provider = content.partition(":")[0]
        if ":" not in content or f"{PROVIDERS}.{provider}.class" not in values or provider not in _names(values):
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: {PROVIDERS} does not define {provider!r}"
            )
    return bool(found)


def _names(values: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in values.get(PROVIDERS, "").split(",") if name.strip()]


def _providers(settings: Settings, environment: Mapping[str, str]) -> dict[str, Provider]:
    """Return the providers by their names. As in Kafka, a name without a class defines none. Raises ConfigError."""
    found: dict[str, Provider] = {}
    for name in _names({key: setting.value for key, setting in settings.items() if key == PROVIDERS}):
        key = f"{PROVIDERS}.{name}.class"
        if key not in settings:
            continue
        prefix = f"{PROVIDERS}.{name}.param."
        parameters = {k.removeprefix(prefix): s.value for k, s in settings.items() if k.startswith(prefix)}
        text, source = settings[key].value.strip(), settings[key].source
        try:
            found[name] = _provider(key, text, parameters, environment)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
    return found


def _provider(key: str, text: str, parameters: Mapping[str, str], environment: Mapping[str, str]) -> Provider:
    match text.removeprefix(_PACKAGE):
        case "EnvVarConfigProvider" if text.startswith(_PACKAGE):
            return EnvironmentProvider(parameters, environment)
        case "FileConfigProvider" if text.startswith(_PACKAGE):
            return FileProvider(parameters)
        case "DirectoryConfigProvider" if text.startswith(_PACKAGE):
            return DirectoryProvider(parameters)
    raise ConfigError(
        f"Invalid value {text} for configuration {key}: Could not load config provider class or one of its "
        f"dependencies (built in: {_PACKAGE}EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider)"
    )


def _resolved(name: str, setting: Setting, providers: Mapping[str, Provider]) -> Setting:
    """Raises ConfigError, which names the variable and not the value."""

    def value_of(found: re.Match[str]) -> str:
        provider, colon, rest = found[1].partition(":")
        if not colon:
            raise UnresolvedError(f"{found[0]} is not a variable of a config provider: ${{PROVIDER:KEY}}")
        if provider not in providers:
            raise UnresolvedError(f"{PROVIDERS} does not define {provider!r} of the variable {found[0]}")
        path, colon, key = rest.partition(":")
        value = providers[provider].get(path if colon else "", key if colon else path)
        if value is None:
            raise UnresolvedError(f"the variable {found[0]} has no value")
        return value

    try:
        return replace(setting, value=VARIABLE.sub(value_of, setting.value), variables=setting.value)
    except ConfigError as error:
        raise type(error)(f"{setting.source}: {name}: {error}") from None
