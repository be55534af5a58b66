"""The sources of settings: properties files, ``--override`` and ``KAFKA_*`` environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from milena.config.values import ConfigError

SCRIPT_VARIABLES: Final = re.compile(
    r"KAFKA_(VERSION|SCALA_VERSION|HOME|HEAP_OPTS|OPTS|DEBUG|MODE|CLUSTER_ID|CONFIG|USER|GID|UID|DATA_DIR|LOG4J2?_.*|JMX_.*|"
    r"JVM_.*|GC_LOG_OPTS|GC_LOG_ENABLED|TOOLS_LOG4J2?_.*|CONNECT_.*|MIRROR_MAKER_.*|TRACE|EXTRA_ARGS)"
)
"""Variables of Kafka's images and scripts that are not configuration keys."""
PLATFORM_VARIABLES: Final = re.compile(
    r"KAFKA_((.*_)?SERVICE_HOST|(.*_)?SERVICE_PORT(_.*)?|(.*_)?PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?|ENV_.*|NAME)"
)
"""Variables that Kubernetes injects for services whose names begin with ``kafka``, and Docker for linked containers."""
PLATFORM_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://.*")
"""The value of their ``..._PORT``."""
VARIABLE: Final = "environment variable "
"""Begins the source of a setting from the environment."""
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
SPACE: Final = " \t\f"


Hidden = tuple[str, str]
"""A variable, ``${PROVIDER:KEY}``, and the value that a config provider has for it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its source, for error messages."""

    value: str
    source: str
    typed: bool = False
    """Whether a person typed it as an argument. An unknown key is an error then, and otherwise a warning."""
    variables: str | None = None
    """The text with variables, if ``value`` comes from config providers: messages must not show the value."""
    hidden: tuple[Hidden, ...] = ()
    """The variables of that text with their values."""


Settings = dict[str, Setting]


def from_properties(data: bytes, name: str) -> Settings:
    """Parse a file in Java's properties format. ``name``: the file's name in messages."""
    return properties_of(data.decode("latin-1"), name)


def properties_of(text: str, name: str) -> Settings:
    """Parse the text of such a file. Raises ConfigError."""
    settings: Settings = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        source = f"{name}:{number}"
        try:
            settings[_unescape(key)] = Setting(_unescape(value), source)
        except ValueError:
            raise ConfigError(f"{source}: malformed \\uxxxx escape") from None
    return settings


def from_overrides(pairs: Iterable[str]) -> Settings:
    """Parse ``key=value`` arguments. Raises ConfigError if there is no ``=``."""
    settings: Settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override {pair!r}: expected key=value")
        settings[key.strip()] = Setting(value, f"--override {key.strip()}", typed=True)
    return settings


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read ``KAFKA_*`` variables as Kafka's image maps them (``__`` is ``_``, ``___`` is ``-``). Variables of Kafka's
    scripts and of the container platform are left out."""
    settings: Settings = {}
    for variable in sorted(environment):
        if variable.startswith("KAFKA_") and not _is_of_others(variable, environment[variable]):
            key = re.sub("_{1,3}", _separator, variable.removeprefix("KAFKA_").lower())
            settings[key] = Setting(environment[variable], f"{VARIABLE}{variable}")
    return settings


def _is_of_others(variable: str, value: str) -> bool:
    if SCRIPT_VARIABLES.fullmatch(variable) or PLATFORM_VARIABLES.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and PLATFORM_ADDRESS.fullmatch(value) is not None


def variable_of(key: str) -> str:
    """Return the environment variable of a key, as ``from_environment`` reads it."""
    separators = {".": "_", "_": "__", "-": "___"}
    return "KAFKA_" + re.sub("[._-]", lambda found: separators[found[0]], key).upper()


def plain(values: Mapping[str, str], source: str = "configuration") -> Settings:
    """Return the settings of a mapping."""
    return {key: Setting(value, source, typed=True) for key, value in values.items()}


def _separator(found: re.Match[str]) -> str:
    return {1: ".", 2: "_", 3: "-"}[len(found[0])]


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield (number of the first line, line): continuation lines joined, blank lines and comments removed."""
    lines = iter(enumerate(re.split("\r\n|\r|\n", text), start=1))
    for number, line in lines:
        joined = line.lstrip(SPACE)
        if not joined or joined[0] in "#!":
            continue
        while _is_continued(joined):
            joined = joined[:-1] + next(lines, (0, ""))[1].lstrip(SPACE)
        yield number, joined


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Split at the first unescaped ``=``, ``:`` or white space into key and value."""
    end = 0
    while end < len(line) and line[end] not in "=:" + SPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(SPACE)
    return line[:end], rest


def _unescape(text: str) -> str:
    """Resolve escapes. Raises ValueError for a malformed unicode escape."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(u.{0,4}|.|$)", _escape, text, flags=re.DOTALL)


def _escape(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[:1] == "u":
        if len(escaped) < 5:
            raise ValueError(escaped)
        return chr(int(escaped[1:], 16))
    return ESCAPES.get(escaped, escaped)
