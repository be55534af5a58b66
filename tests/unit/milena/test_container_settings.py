"""The keys of `MilenaContainer` are typed by a person: an unknown one is an error before a container is started."""

from __future__ import annotations

import pytest

from milena.config.values import ConfigError

containers = pytest.importorskip("milena.testing.containers")
PREFIX = {"remote.log.storage.manager.impl.prefix": "my.tier."}


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown configuration key 'num\.partitons'; did you mean 'num\.partitions'"
    ):
        containers.variables_of({"num.partitons": "3"}, {})


def test_a_known_key_is_a_variable_of_the_container() -> None:
    assert containers.variables_of({"num.partitions": "3"}, {}) == {"KAFKA_NUM_PARTITIONS": "3"}


@pytest.mark.parametrize(("together", "earlier"), [(PREFIX, {}), ({}, PREFIX)])
def test_a_key_with_the_prefix_of_a_plug_in_is_known(together: dict[str, str], earlier: dict[str, str]) -> None:
    found = containers.variables_of({"my.tier.dir": "/tier", **together}, earlier)
    assert found["KAFKA_MY_TIER_DIR"] == "/tier"
    with pytest.raises(ConfigError, match=r"unknown configuration key 'my\.tier\.dir'"):
        containers.variables_of({"my.tier.dir": "/tier"}, {})


def test_a_key_that_no_variable_can_have_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"setting rsm\.config\.endpointUrl: variables do not keep upper case"):
        containers.variables_of({"rsm.config.endpointUrl": "http://s3"}, {})
