"""A Kafka broker of one node for tests: KRaft mode, loopback, its data in a folder of the test."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.spark.connectors import IVY_SETTINGS, Resolution, cached_jars, write_manifest
from floodmark.spark.java import Java, alone, cache_folder, find_java
from floodmark.testing.servers.child import HOST, Child, ServerFailed, await_ready, free_port, listens, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient


IVY_FILE = Path(__file__).with_name("kafka.ivy.xml")
LOGGING = Path(__file__).with_name("log4j2.properties")
# Small, and quick to start: a broker of a test is over before its code is worth optimising.
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
TOPIC_SECONDS = 30
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_floodmark="high water";',
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "min.insync.replicas": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A restarted broker waits until its former self counts as gone.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
}

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "floodmark",
    "sasl.password": "high water",
}
"""The options of a client that comes in by `login_bootstrap`."""


@dataclass
class Broker:
    """A broker that runs, or ran: `stop` or `kill` it and `start` it again on the same port with the same data."""

    folder: Path
    port: int
    controller_port: int
    login_port: int
    child: Child | None = None
    tls: Path | None = None
    """A folder with broker.key, broker.cert and ca.cert, in PEM: with it `tls_bootstrap` is there too."""
    tls_port: int = 0

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def login_bootstrap(self) -> str:
        """The same broker, where it lets in nobody without a login."""
        return f"{HOST}:{self.login_port}"

    @property
    def tls_bootstrap(self) -> str:
        """The same broker, where both sides show a certificate."""
        return f"{HOST}:{self.tls_port}"

    @property
    def log(self) -> Path:
        """What the broker says."""
        return self.folder / "kafka.log"

    @property
    def pid(self) -> int | None:
        """The broker's process, while it runs."""
        return self.child.process.pid if self.child else None

    def start(self) -> None:
        """Start the broker, the first time with fresh data, and wait until it answers."""
        if self.child:
            return
        if not self._settings.exists():
            self._format()
        self.child = start(_java(self.log, "kafka.Kafka", self._settings), self.log)
        try:
            await_ready("Kafka", self.child, self.log, lambda: listens(self.port) and self._answers())
        except ServerFailed:
            self.child = None
            raise

    def stop(self) -> None:
        """Shut down in order; clients see an outage."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, as in a power cut; what was acknowledged is there after `start`."""
        self._end(signal.SIGKILL)

    def admin(self) -> AdminClient:
        """A client that makes topics and asks for offsets."""
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise ConfigError("confluent-kafka is not installed.", hint="pip install 'floodmark[kafka]'") from error
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic and wait until its partitions have a leader."""
        from confluent_kafka.cimpl import NewTopic

        admin = self.admin()
        created = admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        created[name].result(TOPIC_SECONDS)
        deadline = time.monotonic() + TOPIC_SECONDS
        while not is_led(admin, name):  # it was made, and the broker may not know of it yet
            if time.monotonic() > deadline:
                raise ServerFailed(f"topic {name}", log=self.log)
            time.sleep(0.02)

    def _end(self, how: signal.Signals) -> None:
        if self.child:
            self.child.end(how)
        self.child = None

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        public = f"PLAINTEXT://{HOST}:{self.port},LOGIN://{HOST}:{self.login_port}"
        public += f",SSL://{HOST}:{self.tls_port}" if self.tls else ""
        own = {
            "listeners": f"{public},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": public,
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "log.dirs": str(self.folder / "data"),
        }
        settings = {**SETTINGS, **own, **(tls_settings(self.folder, self.tls) if self.tls else {})}
        arriving = self.folder / "server.properties.new"
        arriving.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        # The first byte is fixed: an id that begins with a dash would be taken for an option.
        cluster = urlsafe_b64encode(b"f" + uuid.uuid4().bytes[1:]).rstrip(b"=").decode()
        command = _java(self.log, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", arriving)
        with self.log.open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=output, check=False)
        if done.returncode:
            raise ServerFailed("Kafka", log=self.log)
        arriving.replace(self._settings)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return False


def tls_settings(folder: Path, certificates: Path) -> dict[str, str]:
    """What a listener needs that both sides show a certificate to; Kafka wants key and certificate in one file."""
    own = folder / "broker.pem"
    own.touch(mode=0o600)
    own.write_text("".join((certificates / f"broker.{part}").read_text() for part in ("key", "cert")))
    return {
        "listener.security.protocol.map": f"{SETTINGS['listener.security.protocol.map']},SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.cert"),
        "ssl.client.auth": "required",
    }


@contextmanager
def kafka_broker(folder: Path, *, tls: Path | None = None) -> Iterator[Broker]:
    """A broker during the block, with its data in the folder; `tls`: certificates for `tls_bootstrap`."""
    ports = (free_port(), free_port(), free_port())
    broker = Broker(folder.absolute(), *ports, tls=tls, tls_port=free_port() if tls else 0)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def is_led(admin: AdminClient, topic: str) -> bool:
    """Whether the broker knows the topic and every partition of it has a leader."""
    from confluent_kafka import KafkaException, TopicCollection

    try:
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(TOPIC_SECONDS)
    except KafkaException:
        return False
    return all(partition.leader for partition in described.partitions)


def _java(log: Path, main: str, *arguments: str | Path) -> list[str | Path]:
    java = find_java()
    jars = os.pathsep.join(map(str, kafka_jars(java)))
    logging = (f"-Dlog4j2.configurationFile={LOGGING.as_uri()}", f"-Dfloodmark.log={log}")
    return [java.program, *JVM, *logging, "-cp", jars, main, *arguments]


def kafka_jars(java: Java) -> tuple[Path, ...]:
    """The jars of the broker, in the user's cache folder: the first call ever fetches them (about 40 MB).

    Raises ConnectorsMissing if they could not be resolved.
    """
    key = hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "kafka" / key
    return cached_jars(folder) or _resolve(folder, java)


def _resolve(folder: Path, java: Java) -> tuple[Path, ...]:
    with alone(folder.with_suffix(".lock")):
        if not cached_jars(folder):  # another process may have resolved them while this one waited
            settings = Path(os.environ.get("FLOODMARK_IVY_SETTINGS") or IVY_SETTINGS).expanduser()
            Resolution(IVY_FILE, settings, folder, java).run()
            write_manifest(folder)
    return cached_jars(folder)
