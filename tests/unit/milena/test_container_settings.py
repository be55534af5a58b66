"""The keys of `MilenaContainer` are typed by a person: an unknown one is an error before a container is started."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from milena.config.values import ConfigError

containers = pytest.importorskip("milena.testing.containers")


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown configuration key 'num\.partitons'; did you mean 'num\.partitions'"
    ):
        containers.MilenaContainer.with_setting(Mock(), "num.partitons", "3")


def test_a_known_key_is_a_variable_of_the_container() -> None:
    container = Mock()
    containers.MilenaContainer.with_setting(container, "num.partitions", "3")
    container.with_env.assert_called_once_with("KAFKA_NUM_PARTITIONS", "3")
