"""A node refuses a configuration that would protect Kafka and does not protect Milena."""

from __future__ import annotations

import pytest

from milena.command_line.errors import UserError
from milena.commands.node import checked
from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties, plain
from milena.config.values import ConfigError

LEAST = plain(NodeConfig.of().originals)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALLOWED = "allow.everyone.if.no.acl.found=true\n"


def start(text: str, environment: dict[str, str] | None = None) -> NodeConfig:
    return checked(LEAST | from_properties(text.encode(), "f"), environment or {})


OTHER = "com.example.OwnAuthorizer"
BOTH_WAYS = "allow.everyone.if.no.acl.found=true or the variable MILENA_UNPROTECTED=1"


@pytest.mark.parametrize(
    ("name", "more", "advice"),
    [
        (AUTHORIZER, "", BOTH_WAYS),
        (AUTHORIZER, "allow.everyone.if.no.acl.found=false", BOTH_WAYS),
        (AUTHORIZER, "super.users=User:a", BOTH_WAYS),
        (OTHER, "", "the variable MILENA_UNPROTECTED=1"),
        (OTHER, ALLOWED, "the variable MILENA_UNPROTECTED=1"),
    ],
)
@pytest.mark.parametrize("environment", [{}, {"MILENA_UNPROTECTED": "0"}, {"MILENA_UNPROTECTED": "false"}])
def test_an_authorizer_is_refused(name: str, more: str, advice: str, environment: dict[str, str]) -> None:
    """Only Kafka's own authorizers obey allow.everyone.if.no.acl.found."""
    with pytest.raises(ConfigError) as raised:
        start(f"authorizer.class.name={name}\n{more}", environment)
    assert str(raised.value) == (
        f"f:1: authorizer.class.name={name}: authorizers are not supported yet, so every client could do everything. "
        f"Remove the key, or accept it with {advice}"
    )


@pytest.mark.parametrize(
    ("text", "environment"), [(ALLOWED, {}), ("super.users=User:a\n", {"MILENA_UNPROTECTED": "1"})]
)
def test_an_authorizer_that_the_user_does_without_is_one_warning(text: str, environment: dict[str, str]) -> None:
    config = start(f"{text}authorizer.class.name={AUTHORIZER}", environment)
    assert config.warnings == (
        "no protection: every client may do everything, and ACLs cannot be created; without effect: "
        f"f:1: {text.partition('=')[0]}; f:2: authorizer.class.name",
    )


def test_an_empty_authorizer_is_none() -> None:
    assert start("authorizer.class.name=").warnings == (
        "keys of TLS, SASL and ACLs, without effect on PLAINTEXT listeners and without an authorizer: "
        "f:1: authorizer.class.name",
    )


def test_keys_that_protect_nothing_in_kafka_either_are_one_warning() -> None:
    keys = (
        "ssl.keystore.location",
        "ssl.keystore.password",
        "sasl.enabled.mechanisms",
        "listener.name.inside.plain.sasl.jaas.config",
        "listener.name.inside.ssl.client.auth",
        "super.users",
        "principal.builder.class",
    )
    text = "".join(f"{key}=hidden\n" for key in keys)
    listed = "; ".join(f"f:{line}: {key}" for line, key in enumerate(keys, 1))
    assert start(text).warnings == (
        f"keys of TLS, SASL and ACLs, without effect on PLAINTEXT listeners and without an authorizer: {listed}",
    )


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("environment", [{}, {"MILENA_UNPROTECTED": "1"}])
def test_a_listener_with_tls_or_sasl_is_refused(protocol: str, environment: dict[str, str]) -> None:
    protocols = f"listener.security.protocol.map=PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT\n"
    with pytest.raises(UserError, match=f"listener PLAINTEXT has protocol {protocol}, which is not supported yet"):
        start(f"{protocols}security.inter.broker.protocol=PLAINTEXT", environment)


def test_a_broker_does_not_connect_without_tls_to_a_controller_that_requires_it() -> None:
    with pytest.raises(UserError, match="listener CONTROLLER has protocol SSL, which is not supported yet"):
        start("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SSL")
