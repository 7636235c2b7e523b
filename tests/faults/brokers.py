"""Three small brokers of Kafka that share their topics: one can be killed, and another leads in its place."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.testing.servers.child import HOST, Child, free_port, listens, start
from floodmark.testing.servers.kafka import SETTINGS, _java

SIZE = 3
SHARED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "unclean.leader.election.enable": "false",
}
STARTED_SECONDS = 90.0


@dataclass
class Brokers:
    """The three, each with its port and its folder."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(SIZE)])
    controllers: list[int] = field(default_factory=lambda: [free_port() for _ in range(SIZE)])
    children: dict[int, Child] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """All of them, as clients name them."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def format(self) -> None:
        """Fresh data for each; they know each other by one id."""
        cluster = urlsafe_b64encode(b"f" + uuid.uuid4().bytes[1:]).rstrip(b"=").decode()
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in enumerate(self.controllers, start=1))
        for node in range(1, SIZE + 1):
            home = self.folder / str(node)
            home.mkdir(parents=True)
            public = f"PLAINTEXT://{HOST}:{self.ports[node - 1]}"
            own = {
                "node.id": str(node),
                "listeners": f"{public},CONTROLLER://{HOST}:{self.controllers[node - 1]}",
                "advertised.listeners": public,
                "controller.quorum.voters": voters,
                "log.dirs": str(home / "data"),
            }
            kept = {name: value for name, value in SETTINGS.items() if "sasl" not in name}
            lines = (f"{name}={value}\n" for name, value in {**kept, **SHARED, **own}.items())
            (home / "server.properties").write_text("".join(lines))
            command = _java(home / "kafka.log", "kafka.tools.StorageTool", "format", "-t", cluster, "-c")
            subprocess.run([*command, home / "server.properties"], check=True, capture_output=True)

    def start(self, node: int) -> None:
        """Begin one; it has not answered yet."""
        log = self.folder / str(node) / "kafka.log"
        settings = self.folder / str(node) / "server.properties"
        self.children[node] = start(_java(log, "kafka.Kafka", settings), log)

    def kill(self, node: int) -> None:
        """End one at once."""
        self.children.pop(node).end(signal.SIGKILL)

    def await_all(self) -> None:
        """Until each of them answers, and knows the two others."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        until = time.monotonic() + STARTED_SECONDS
        while time.monotonic() < until:
            try:
                if all(map(listens, self.ports)):
                    client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
                    if len(client.list_topics(timeout=5).brokers) == SIZE:
                        return
            except KafkaException:
                pass
            time.sleep(0.3)
        raise TimeoutError(f"the brokers of {self.folder} did not find each other")

    def create_topic(self, name: str, partitions: int) -> None:
        """A topic that each broker has a copy of."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        client.create_topics([NewTopic(name, partitions, SIZE)])[name].result(30)

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition now."""
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return int(client.list_topics(topic, 20).topics[topic].partitions[partition].leader)


@contextmanager
def three_brokers(folder: Path) -> Iterator[Brokers]:
    """All three, until the block ends."""
    brokers = Brokers(folder)
    brokers.format()
    try:
        for node in range(1, SIZE + 1):
            brokers.start(node)
        brokers.await_all()
        yield brokers
    finally:
        for node in list(brokers.children):
            brokers.kill(node)
