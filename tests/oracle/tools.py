"""Kafka's command-line tools, one after the other in one JVM, because each JVM start takes a second of two cores."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.oracle import kafka

PROGRAM: Final = Path(__file__).with_name("KafkaTools.java")
TOOLS: Final = "org.apache.kafka.tools"

TOPICS: Final = f"{TOOLS}.TopicCommand"
ACLS: Final = f"{TOOLS}.AclCommand"
CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
GROUPS: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
ALL_GROUPS: Final = f"{TOOLS}.GroupsCommand"
OFFSETS: Final = f"{TOOLS}.GetOffsetShell"
DELETE_RECORDS: Final = f"{TOOLS}.DeleteRecordsCommand"
LOG_DIRS: Final = f"{TOOLS}.LogDirsCommand"
CLUSTER: Final = f"{TOOLS}.ClusterTool"
QUORUM: Final = f"{TOOLS}.MetadataQuorumCommand"
API_VERSIONS: Final = f"{TOOLS}.BrokerApiVersionsCommand"
FEATURES: Final = f"{TOOLS}.FeatureCommand"
TRANSACTIONS: Final = f"{TOOLS}.TransactionsCommand"
REASSIGN: Final = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT: Final = f"{TOOLS}.LeaderElectionCommand"
VERIFY_REPLICAS: Final = f"{TOOLS}.ReplicaVerificationTool"
DUMP: Final = f"{TOOLS}.DumpLogSegments"
JMX: Final = f"{TOOLS}.JmxTool"
CONSOLE_PRODUCER: Final = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER: Final = f"{TOOLS}.consumer.ConsoleConsumer"
VERIFIABLE_PRODUCER: Final = f"{TOOLS}.VerifiableProducer"
VERIFIABLE_CONSUMER: Final = f"{TOOLS}.VerifiableConsumer"
MESSAGE_COPIER: Final = f"{TOOLS}.TransactionalMessageCopier"
PRODUCER_PERFORMANCE: Final = f"{TOOLS}.ProducerPerformance"
CONSUMER_PERFORMANCE: Final = f"{TOOLS}.ConsumerPerformance"


class Ran(NamedTuple):
    """A tool's output and exit code."""

    status: int
    out: str
    err: str


class Tools:
    """The JVM. It starts with the first tool, and starts again after a tool that did not finish."""

    def __init__(self) -> None:
        self._jvm: subprocess.Popen[str] | None = None

    def run(self, main: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a tool to its end, with any exit code."""
        jvm = self._running()
        assert jvm.stdin is not None and jvm.stdout is not None
        words = (base64.b64encode(word.encode()).decode() for word in (stdin, main, *arguments))
        try:
            jvm.stdin.write(" ".join(words) + "\n")
            jvm.stdin.flush()
            status, out, err = jvm.stdout.readline().rstrip("\n").split(" ")
        except BaseException:
            self.close()
            raise
        return Ran(int(status), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def __call__(self, main: str, *arguments: str, stdin: str = "") -> str:
        """Run a tool and return its standard output. Fails with all its output if its exit code is not 0."""
        ran = self.run(main, *arguments, stdin=stdin)
        assert ran.status == 0, f"{main} {' '.join(arguments)} ended with {ran.status}\n{ran.out}\n{ran.err}"
        return ran.out

    def refusal(self, main: str, *arguments: str) -> str:
        """Run a tool that must fail; return all its output."""
        ran = self.run(main, *arguments)
        assert ran.status != 0, f"{main} {' '.join(arguments)} succeeded\n{ran.out}"
        return ran.out + ran.err

    def close(self) -> None:
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm.communicate()
            self._jvm = None

    def _running(self) -> subprocess.Popen[str]:
        if self._jvm is None:
            command = kafka.java(str(PROGRAM), heap="384m")
            self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._jvm
