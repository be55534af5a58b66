"""Options are read as JOpt Simple, the option parser of Kafka's tools, reads them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import pytest

from milena.scripts.common.failures import ScriptError
from milena.scripts.common.options import VERSION, Option, Parser, UsageError, integer, key_values, number
from milena.scripts.table import MODULES

PARSER = Parser(
    "About.",
    [
        Option("topic", "A topic.", "topic"),
        Option("time", "A time.", "time", convert=number),
        Option("count", "A count.", "count", convert=integer),
        Option("state", "A state.", "state", optional=True),
        Option("list", "List.", short="l"),
        Option("secret", value="s", missing="there are no secrets"),
    ],
)


def test_values_follow_a_space_or_an_equals_sign_and_may_begin_with_a_dash() -> None:
    found = PARSER.parse(["--topic=a", "-time", "-1", "--topic", "--list", "-l", "word"])
    assert found.all("topic") == ["a", "--list"]
    assert found.one("time") == -1
    assert found.has("list") and not found.has("state")
    assert found.words == ["word"]
    assert found.order == ["topic", "time", "topic", "list"]


def test_an_optional_value_is_no_option() -> None:
    assert PARSER.parse(["--state", "--list"]).all("state") == []
    assert PARSER.parse(["--state", "stable"]).one("state") == "stable"
    assert PARSER.parse(["--state"]).one("state", "all") == "all"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "About."),
        (["--help"], "About."),
        (["--nonsense"], "nonsense is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["--time", "soon"], "Cannot parse argument 'soon' of option time"),
        (["--count", "2147483648"], "Cannot parse argument '2147483648' of option count"),
        (["--secret", "x"], "--secret is not supported: there are no secrets"),
    ],
)
def test_errors_name_the_option(arguments: Sequence[str], said: str) -> None:
    with pytest.raises(ScriptError) as raised:
        PARSER.parse(arguments)
    assert raised.value.message == said


def test_required_repeated_and_excluded_options_are_errors() -> None:
    found = PARSER.parse(["--topic", "a", "--topic", "b", "--list"])
    for call, said in (
        (lambda: found.one("topic"), "Found multiple arguments for option topic, but you asked for only one"),
        (lambda: found.require("list", "time"), 'Missing required argument "[time]"'),
        (lambda: found.exclude("topic", ["list"]), 'Option "[topic]" can\'t be used with option "[list]"'),
    ):
        with pytest.raises(UsageError) as raised:
            call()
        assert raised.value.message == said


def test_the_version_is_that_of_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        PARSER.parse(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{VERSION}\n"


def test_help_lists_the_supported_options() -> None:
    shown = PARSER.help().splitlines()
    assert shown[0].split() == ["Option", "Description"]
    assert [line.split()[0] for line in shown[2:]] == [
        "--count",
        "--help",
        "--state",
        "--time",
        "--topic",
        "--version",
        "-l,",
    ]


def test_a_property_may_lack_a_value_and_contain_equals_signs() -> None:
    assert key_values(["a=b=c", "d"]) == {"a": "b=c", "d": ""}


def test_each_script_has_a_module_with_a_main_function() -> None:
    for module in MODULES.values():
        assert callable(import_module(f"milena.scripts.{module}").main)
