"""Kafka's StorageTool and Milena read the same files: unknown keys, and variables of config providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties
from milena.config.values import ConfigError
from tests.oracle.tools import Tools

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
NODE = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
config.providers=env,file,dir
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The name of a server.properties beside a file with a secret, by which both providers find the folder DIR/data."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "folder").write_text(str(tmp_path / "data"))
    (tmp_path / "secrets.properties").write_text(f"folder={tmp_path}/data\n")
    return tmp_path / "server.properties"


def format_with_kafka(tools: Tools, file: Path, lines: str) -> tuple[int, str]:
    """Return the exit code and all output of Kafka's StorageTool for a node with these lines."""
    file.write_text(NODE + lines)
    ran = tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(file))
    return ran.status, ran.out + ran.err


@pytest.mark.parametrize(
    "lines",
    [
        "log.dirs={dir}/data\nnum.partitons=3\nssl.foo=1\nconfluent.x=1\nzookeeper.connect=z\nmy.plug-in=1",
        "log.dirs=${{file:{dir}/secrets.properties:folder}}",
        "log.dirs=${{dir:{dir}/secrets:folder}}",
        "log.dirs=${{file:{dir}/./secrets.properties:folder}}\nconfig.providers.file.param.allowed.paths={dir}",
        "log.dirs={dir}/data\nsasl.jaas.config=${{file:{dir}/secrets.properties:missing}}",
    ],
    ids=["unknown keys", "file", "directory", "allowed", "without effect"],
)
def test_both_use_the_same_folder(tools: Tools, file: Path, lines: str) -> None:
    lines = lines.format(dir=file.parent)
    status, said = format_with_kafka(tools, file, lines)
    assert status == 0, said
    config = NodeConfig(from_properties((NODE + lines).encode(), "f"))
    assert config.log_dirs == (f"{file.parent}/data",)
    assert (file.parent / "data" / "meta.properties").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "log.dirs={dir}/a\nconfig.providers.env.class=com.Nope",
            "Invalid value com.Nope for configuration config.providers.env.class: Could not load config provider class",
        ),
        ("log.dirs=${{file:{dir}/none:a}}", "Could not read properties from file {dir}/none"),
        ("log.dirs=${{env:some:a}}", "Path is not supported for EnvVarConfigProvider, invalid value 'some'"),
        ("log.dirs={dir}/a\nconfig.providers.dir.param.allowed.paths=here", "Path here is not absolute"),
        ("log.dirs={dir}/a\nconfig.providers.dir.param.allowed.paths=/no/such", "Path /no/such does not exist"),
    ],
)
def test_both_refuse_it_with_the_same_message(tools: Tools, file: Path, lines: str, message: str) -> None:
    lines, message = lines.format(dir=file.parent), message.format(dir=file.parent)
    status, said = format_with_kafka(tools, file, lines)
    assert status != 0 and message in said
    with pytest.raises(ConfigError) as raised:
        NodeConfig(from_properties((NODE + lines).encode(), "f"))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "lines",
    [
        "log.dirs={dir}/${{vault:some:thing}}/x",
        "log.dirs={dir}/${{file:{dir}/secrets.properties:missing}}/x",
        "log.dirs={dir}/${{dir:{dir}/secrets:folder}}/x\nconfig.providers.dir.param.allowed.paths=/proc",
    ],
    ids=["unknown provider", "no value", "not allowed"],
)
def test_a_variable_that_kafka_uses_literally_is_an_error_here(tools: Tools, file: Path, lines: str) -> None:
    lines = lines.format(dir=file.parent)
    status, said = format_with_kafka(tools, file, lines)
    assert status == 0, said
    assert any(path.name.startswith("${") for path in file.parent.iterdir())
    with pytest.raises(ConfigError, match=r"log\.dirs: "):
        NodeConfig(from_properties((NODE + lines).encode(), "f"))
