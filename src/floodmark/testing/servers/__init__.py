"""Real servers for tests, on free ports of this machine: a Kafka broker and a PostgreSQL server.

They start within seconds, need no container, and end with the process that started them, also if it is killed.
"""

from __future__ import annotations

from floodmark.testing.servers.kafka import Broker, kafka_broker
from floodmark.testing.servers.postgres import Server, postgres_server

__all__ = ["Broker", "Server", "kafka_broker", "postgres_server"]
