"""How Kafka is reached: one set of options for both clients, librdkafka's here and Java's inside Spark.

An option is written once, under the name that either client knows it by; those that differ are translated. A prefix
addresses one part alone: `kafka.NAME` is Java's client, `librdkafka.NAME` librdkafka, `spark.NAME` Spark's connector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.logs import redact

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient


JAVA, NATIVE, CONNECTOR = "kafka.", "librdkafka.", "spark."
SECRET = re.compile(r"(?i)password|secret|jaas|token|\.key|pem|oauthbearer\.config|keystore|certificates?$")
SECRET_LENGTH = 3
"""Shorter values are not looked for in texts: blotting out every 'a' would hide the message and no secret."""

NATIVE_DEFAULTS: Mapping[str, object] = {
    "client.id": "floodmark",
    "log_level": 0,  # what goes wrong is raised; librdkafka would print it to stderr as well
    "socket.connection.setup.timeout.ms": 10_000,
    "socket.timeout.ms": 20_000,
}
JAVA_ONLY = frozenset(
    {"max.poll.records", "receive.buffer.bytes", "send.buffer.bytes", "sasl.jaas.config", "sasl.login.class"}
    | {"sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "ssl.keystore.type", "ssl.protocol"}
    | {"ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates"}
    | {"ssl.keystore.certificate.chain", "ssl.enabled.protocols", "request.timeout.ms", "default.api.timeout.ms"}
)
"""Names that librdkafka would refuse."""

LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


BOOTSTRAP = "give it as host:port, several with commas between"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""What librdkafka and Java take in front of a broker."""


@dataclass(frozen=True, repr=False)
class KafkaOptions:
    """The brokers and every other option of a client: `security.protocol`, `sasl.*`, `ssl.*` and whatever there is.

    Translated for Java: `sasl.username` and `sasl.password` (PLAIN, SCRAM) become `sasl.jaas.config`;
    `ssl.ca.location` and `ssl.ca.pem` a PEM truststore; `ssl.certificate.*` with `ssl.key.*` a PEM keystore, whose
    files are read on the driver; `ssl.endpoint.identification.algorithm: none` the empty text that Java wants.
    """

    bootstrap: str | Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.servers:
            raise ConfigError("bootstrap names no broker.", hint=BOOTSTRAP)
        schemes = [each.strip().partition("://")[0] for each in self.servers.split(",") if "://" in each]
        if unknown := [scheme for scheme in schemes if scheme.upper() not in PROTOCOLS]:
            raise ConfigError(f"bootstrap begins with {unknown[0]}://, which is no part of a broker.", hint=BOOTSTRAP)

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {str(name): option_text(value) for name, value in self.options.items()}

    @property
    def servers(self) -> str:
        return self.bootstrap if isinstance(self.bootstrap, str) else ",".join(self.bootstrap)

    @property
    def call_seconds(self) -> float:
        """How long a question to the brokers may take: as long as a request, and half of that to connect before it."""
        return 1.5 * float(self.librdkafka()["socket.timeout.ms"]) / 1000

    def librdkafka(self, **more: object) -> dict[str, Any]:
        """The configuration of a native client; `more` is the caller's own and wins."""
        plain = {name: value for name, value in self._plain().items() if name not in JAVA_ONLY}
        return {**NATIVE_DEFAULTS, **plain, **self._only(NATIVE), "bootstrap.servers": self.servers, **more}

    def spark(self) -> dict[str, str]:
        """The options of Spark's Kafka reader or writer: those of its Java client, and its own."""
        java = {**java_options(self._plain()), **self._only(JAVA), "bootstrap.servers": self.servers}
        return {**self._only(CONNECTOR), **{f"{JAVA}{name}": value for name, value in java.items()}}

    def admin(self, **more: object) -> AdminClient:
        """A native admin client; it connects when it is first asked. Raises ConfigError for an option it refuses."""
        driver()
        from confluent_kafka.admin import AdminClient

        return self._make(AdminClient, self.librdkafka(**more))  # type: ignore[no-any-return]

    def consumer(self, **more: object) -> Consumer:
        """A native consumer that commits nothing by itself and sees only what was committed."""
        driver()
        from confluent_kafka import Consumer

        ours = {
            "group.id": "floodmark",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,  # we read what is there: the end of a partition is told now, not in half a second
        }
        return self._make(Consumer, self.librdkafka(**{**ours, **more}))  # type: ignore[no-any-return]

    def without_secrets(self, text: str) -> str:
        """The text of an error as it may be shown."""
        secrets = {value for name, value in self._texts.items() if is_secret(name) and len(value) >= SECRET_LENGTH}
        return redact(text, *secrets)

    def _plain(self) -> dict[str, str]:
        prefixes = (JAVA, NATIVE, CONNECTOR)
        return {name: value for name, value in self._texts.items() if not name.startswith(prefixes)}

    def _only(self, prefix: str) -> dict[str, str]:
        own = {name: value for name, value in self._texts.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): value for name, value in own.items()}

    def _make(self, client: Any, configuration: Mapping[str, Any]) -> Any:  # noqa: ANN401 (the driver's own classes)
        from confluent_kafka import KafkaException

        try:
            return client(dict(configuration))
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(
                f"the options for Kafka at {self.servers} are refused: {self.without_secrets(driver_message(error))}",
                hint="fix `options`; a name that only Spark's Java client knows is written kafka.NAME",
            ) from None  # the driver's own text may hold a secret

    def __repr__(self) -> str:
        return f"KafkaOptions(bootstrap={self.servers!r}, options={sorted(self._texts)})"


def driver() -> None:
    """Raises ConfigError with the command that installs the driver, if it is not there."""
    try:
        import confluent_kafka  # noqa: F401 (asked only whether it is there)
    except ImportError as error:
        raise ConfigError(
            "Kafka needs the package confluent-kafka, which is not installed.", hint="pip install 'floodmark[kafka]'"
        ) from error


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """The same options under the names that the Java client knows."""
    translated = {**_login(options), **_trust(options), **_own_certificate(options)}
    plain = {name: value for name, value in options.items() if name not in TRANSLATED}
    algorithm = "ssl.endpoint.identification.algorithm"
    if plain.get(algorithm, "").lower() == "none":
        plain[algorithm] = ""
    return {**translated, **plain}


TRANSLATED = frozenset(
    {"sasl.username", "sasl.password", "sasl.mechanisms", "ssl.ca.location", "ssl.ca.pem"}
    | {"ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem"}
)


def _login(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanisms") or options.get("sasl.mechanism")
    found = {"sasl.mechanism": mechanism} if mechanism else {}
    module = LOGIN_MODULES.get((mechanism or "").upper())
    if module is None or "sasl.username" not in options:
        return found
    user, password = (_jaas_text(options.get(f"sasl.{name}", "")) for name in ("username", "password"))
    return {**found, "sasl.jaas.config": f"{module} required username={user} password={password};"}


def _trust(options: Mapping[str, str]) -> dict[str, str]:
    if "ssl.ca.pem" in options:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": options["ssl.ca.pem"]}
    if "ssl.ca.location" in options:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
    return {}


def _own_certificate(options: Mapping[str, str]) -> dict[str, str]:
    chain, key = (_pem(options, name) for name in ("certificate", "key"))
    if chain is None or key is None:
        return {}
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}


def _pem(options: Mapping[str, str], name: str) -> str | None:
    if f"ssl.{name}.pem" in options:
        return options[f"ssl.{name}.pem"]
    place = options.get(f"ssl.{name}.location")
    try:
        return Path(place).read_text() if place else None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"ssl.{name}.location {place} cannot be read: {reason}.", hint="fix the path") from error


def _jaas_text(text: str) -> str:
    """A value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_secret(name: str) -> bool:
    """Whether the value of an option must never be shown."""
    return SECRET.search(name) is not None


def option_text(value: object) -> str:
    """Options are text, and their true is lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def driver_message(error: BaseException) -> str:
    """What the driver says, without its frame of codes."""
    inner = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)
