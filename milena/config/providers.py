"""Variables in values, ``${PROVIDER:[PATH:]KEY}``, and the providers that resolve them (KIP-297, KIP-421; Kafka's
``AbstractConfig.resolveConfigVariables``, ``ConfigTransformer`` and its three config providers).

Kafka uses a variable that it cannot resolve literally, for example as the name of a log directory. Here it is an error.
Any client may alter a dynamic configuration, and a broker resolves it on its event loop, so the work is limited.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from milena.config.keys import DYNAMIC_KEYS, KEYS
from milena.config.sources import Hidden, Setting, Settings, properties_of
from milena.config.values import ConfigError

PROVIDERS: Final = "config.providers"
PLUG_INS: Final = ("rsm.config.", "rlmm.config.")
"""Prefixes of the keys of plug-ins that Milena has."""
PLUG_IN_PREFIXES: Final = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
"""Keys whose value is the prefix of the keys of a plug-in."""
MAX_VARIABLES: Final = 100
"""The maximum number of variables in a value."""
MAX_READ: Final = 1 << 20
"""The maximum number of characters that a provider reads from files for one configuration."""
ALLOW_LIST: Final = "allowlist.pattern"
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
            self._allowed = re.compile(parameters.get(ALLOW_LIST, ".*"), re.DOTALL)
        except re.error as error:
            raise ConfigError(f"{ALLOW_LIST}: {error}") from None

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


class TextFiles:
    """Reads regular files, each once, of ``MAX_READ`` characters together. A device or a pipe may have no end."""

    def __init__(self) -> None:
        self._left = MAX_READ
        self._read: dict[str, str] = {}

    def text(self, path: str) -> str:
        """Return the content of a file in UTF-8. Raises OSError, UnicodeDecodeError."""
        if path not in self._read:
            if not os.path.isfile(path):
                raise FileNotFoundError(path)
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read(self._left + 1)
            if len(text) > self._left:
                raise OSError(f"more than {MAX_READ} characters")
            self._left -= len(text)
            self._read[path] = text
        return self._read[path]


class FileProvider:
    """Kafka's FileConfigProvider: ``${file:PATH:KEY}``, a key of a properties file in UTF-8."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._allowed = AllowedPaths(parameters)
        self._files = TextFiles()
        self._parsed: dict[str, Settings] = {}

    def get(self, path: str, key: str) -> str | None:
        if not path:
            return None
        allowed = self._allowed.check(path)
        if allowed not in self._parsed:
            try:
                self._parsed[allowed] = properties_of(self._files.text(allowed), path)
            except (OSError, UnicodeDecodeError):
                raise ConfigError(f"Could not read properties from file {path}") from None
        found = self._parsed[allowed].get(key)
        return None if found is None else found.value


class DirectoryProvider:
    """Kafka's DirectoryConfigProvider: ``${dir:PATH:NAME}``, the content of a file, as Kubernetes mounts secrets."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._allowed = AllowedPaths(parameters)
        self._files = TextFiles()

    def get(self, path: str, key: str) -> str | None:
        file = os.path.join(self._allowed.check(path), key)
        if not path or os.path.basename(file) != key or not os.path.isfile(file):
            return None
        try:
            return self._files.text(file)
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
        if "${" in setting.value and setting.variables is None and not name.startswith(PROVIDERS):
            try:
                resolved[name] = _resolved(name, setting, providers)
            except UnresolvedError:
                if name in KEYS or name.startswith(effective):
                    raise
    return resolved


def hidden_in(settings: Settings) -> tuple[Hidden, ...]:
    """Return the variables of resolved settings with the values that messages must not show."""
    return tuple(pair for setting in settings.values() for pair in setting.hidden)


def hide(text: str, hidden: Iterable[Hidden]) -> str:
    """Return a message in which the values of config providers, and the elements of lists, are their variables: as
    whole words, in upper or lower case."""
    split = ((part.strip(), variable) for variable, value in hidden for part in (value, *value.split(",")))
    parts = {part.lower(): variable for part, variable in split if part}
    if not parts:
        return text
    either = "|".join(re.escape(part) for part in sorted(parts, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{either})(?!\w)", lambda found: parts[found[0].lower()], text, flags=re.IGNORECASE)


def resolve_dynamic(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a dynamic configuration, which has providers of its own
    (``DynamicBrokerConfig.resolveVariableConfigs``). Values that cannot be resolved are left out."""
    if not any("${" in value for value in values.values()):
        return dict(values)
    settings = {name: Setting(value, "dynamic configuration") for name, value in values.items()}
    try:
        providers = _dynamic_providers(settings)
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
        providers = _dynamic_providers(settings)
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
    found = [text[first + 2 : end - 1] for first, end in _variables_in(text)]
    names = _names(values.get(PROVIDERS, "")) if found else ()
    for content in found:
        provider = content.partition(":")[0]
        if ":" not in content or f"{PROVIDERS}.{provider}.class" not in values or provider not in names:
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: {PROVIDERS} does not define {provider!r}"
            )
    return bool(found)


def _names(providers: str) -> dict[str, None]:
    """Return the names in a value of ``config.providers``, in order."""
    return dict.fromkeys(filter(None, map(str.strip, providers.split(","))))


def _variables_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of everything that looks like a variable, ``${...}``. A regular expression would take
    quadratic time if no brace is closed. Raises ConfigError if there are more than ``MAX_VARIABLES``."""
    at = number = 0
    while (first := text.find("${", at)) >= 0 and (last := text.find("}", first)) >= 0:
        number += 1
        if number > MAX_VARIABLES:
            raise ConfigError(f"more than {MAX_VARIABLES} variables in a value")
        at = last + 1
        yield first, at


def _substituted(text: str, value_of: Callable[[str], str]) -> str:
    """Replace each variable by what ``value_of`` returns for it."""
    parts: list[str] = []
    at = 0
    for first, end in _variables_in(text):
        parts += [text[at:first], value_of(text[first:end])]
        at = end
    return "".join([*parts, text[at:]])


def _dynamic_providers(settings: Settings) -> dict[str, Provider]:
    """Return the providers of a dynamic configuration. Raises ConfigError, also for ``allowlist.pattern``: the pattern
    of a client can take any time."""
    refused = next((name for name in settings if name.startswith(PROVIDERS) and name.endswith(f".{ALLOW_LIST}")), None)
    if refused is not None:
        raise ConfigError(f"Invalid configuration {refused}: a dynamic configuration has no patterns")
    return _providers(settings, os.environ)


def _providers(settings: Settings, environment: Mapping[str, str]) -> dict[str, Provider]:
    """Return the providers by their names. As in Kafka, a name without a class defines none. Raises ConfigError."""
    found: dict[str, Provider] = {}
    for name in _names(settings[PROVIDERS].value if PROVIDERS in settings else ""):
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
    hidden: list[Hidden] = []

    def value_of(variable: str) -> str:
        provider, colon, rest = variable[2:-1].partition(":")
        if not colon:
            raise UnresolvedError(f"{variable} is not a variable of a config provider: ${{PROVIDER:KEY}}")
        if provider not in providers:
            raise UnresolvedError(f"{PROVIDERS} does not define {provider!r} of the variable {variable}")
        path, colon, key = rest.partition(":")
        value = providers[provider].get(path if colon else "", key if colon else path)
        if value is None:
            raise UnresolvedError(f"the variable {variable} has no value")
        hidden.append((variable, value))
        return value

    try:
        value = _substituted(setting.value, value_of)
        return replace(setting, value=value, variables=setting.value, hidden=tuple(hidden))
    except ConfigError as error:
        raise type(error)(f"{setting.source}: {name}: {error}") from None
