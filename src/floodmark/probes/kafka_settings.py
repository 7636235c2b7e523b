"""The settings of a topic that decide how long its messages are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceUnreadable
from floodmark.probes.kafka_client import driver, told

if TYPE_CHECKING:
    from floodmark.probes.kafka_client import KafkaOptions

REQUEST_SECONDS = 10.0
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Keeping:
    """How long a topic keeps its messages; None is for ever."""

    hours: float | None
    bytes: int | None
    is_compacted: bool

    def __str__(self) -> str:
        time = "for ever" if self.hours is None else f"for {self.hours:g} h"
        size = f", at most {self.bytes} bytes of a partition" if self.bytes is not None else ""
        return f"{time}{size}"


def keeping_of(options: KafkaOptions, topics: Sequence[str]) -> dict[str, Keeping]:
    """By topic. Raises SourceUnreadable if the broker does not tell."""
    driver()
    from concurrent.futures import TimeoutError as NoAnswer

    from confluent_kafka import KafkaException, admin

    told_by: Any = admin  # the driver does not say that it exports these two
    wanted = [told_by.ConfigResource(told_by.ResourceType.TOPIC, topic) for topic in topics]
    client = options.admin()  # has a name, since its answers end with it
    try:
        asked = client.describe_configs(wanted, request_timeout=REQUEST_SECONDS)
        found = {resource.name: future.result(REQUEST_SECONDS + 5) for resource, future in asked.items()}
    except (KafkaException, NoAnswer) as error:
        reason = options.without_secrets(told(error) or type(error).__name__)
        raise SourceUnreadable(f"the settings of {', '.join(topics)}", reason=reason) from None
    return {topic: _keeping({name: str(entry.value) for name, entry in each.items()}) for topic, each in found.items()}


def _keeping(settings: dict[str, str]) -> Keeping:
    policy = settings.get("cleanup.policy", "delete")
    deletes = "delete" in policy
    milliseconds, size = (int(settings.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
    hours = milliseconds / HOUR_MS if deletes and milliseconds >= 0 else None
    return Keeping(hours, size if deletes and size >= 0 else None, "compact" in policy)
