"""A real Kafka broker for the tests: one node in KRaft mode, on free ports, in a folder of its own."""

import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

from tests.ports import free_ports

POM = Path(__file__).parent / "pom.xml"
START_S = 180
MAVEN_S = 600
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER, PASSWORD = "ann", "hunter2"


def jars() -> Path | None:
    """The broker's jars, fetched once; None when there is neither a cache nor Maven."""
    folder = Path(os.environ.get("MILLPOND_BROKER_JARS", "~/.cache/millpond/broker")).expanduser()
    if not any(folder.glob("kafka_2.13-*.jar")):
        maven = shutil.which("mvn")
        if maven is None:
            return None
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        subprocess.run([maven, "-q", "-B", "-f", str(POM), *goal], check=True, timeout=MAVEN_S)
    return folder


class Broker:
    """`start` and `stop` may follow each other: ports and data stay the same."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder, self._jars = folder, jars
        self._port, self._controller, self._login_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None
        self._write_properties()
        self._run_to_end("kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", str(self._properties))

    @property
    def address(self) -> str:
        return f"localhost:{self._port}"

    @property
    def login_address(self) -> str:
        """Where a login is asked for."""
        return f"localhost:{self._login_port}"

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _write_properties(self) -> None:
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@localhost:{self._controller}",
            "listeners": f"PLAINTEXT://{self.address},LOGIN://{self.login_address},"
            f"CONTROLLER://localhost:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address},LOGIN://{self.login_address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_{USER}="{PASSWORD}";',
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self._properties.write_text("\n".join(f"{name}={value}" for name, value in lines.items()), "utf-8")

    def _command(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx384m", "-cp", f"{self._jars}/*", *arguments]

    def _run_to_end(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), check=True, capture_output=True, timeout=START_S)

    def start(self) -> None:
        with (self._folder / "broker.log").open("ab") as log:
            arguments = self._command("kafka.Kafka", str(self._properties))
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "broker.log").read_text("utf-8")[-2000:]
            assert time.monotonic() < deadline, "the broker did not start in time"

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return bool(AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def stop(self) -> None:
        """End the process that `start` began."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_S)
            self._process = None
