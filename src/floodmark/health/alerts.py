"""Alerts: findings that somebody asked to hear of, each told once when it opens, worsens or ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from floodmark.health.findings import SEVERITY, Finding, Report
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from floodmark.hwm import Json

log = get_logger(__name__)
NOTICES = ("run_started", "run_succeeded", "summary")
"""Kinds that tell no trouble: somebody asked to be told when all is well, so no severity holds them back."""
SUMMARY = "summary"
"""Comes with every examination, so only a channel that names it hears it."""
Severity = Literal["warning", "critical"]


@dataclass(frozen=True)
class Alert:
    """Something to tell. `id` is the same as long as the trouble lasts; `status` says whether it began or ended.

    A "note" tells no trouble, and its severity is "info".
    """

    id: str
    kind: str
    subject: str
    severity: str
    status: Literal["open", "resolved", "note"]
    message: str
    time: datetime

    def serialize(self) -> dict[str, Json]:
        return {**asdict(self), "time": self.time.isoformat()}


class Channel(Protocol):
    """Somewhere alerts go."""

    def describe(self) -> str:
        """What it is, for logs; never with a secret in it."""

    def send(self, alert: Alert) -> None:
        """Tell it, or raise."""


@dataclass(frozen=True)
class Subscription:
    """A channel, with what it wants to hear: kinds (none named: all) from a severity on."""

    channel: Channel
    on: tuple[str, ...] = ()
    min_severity: Severity = "warning"

    def wants(self, alert: Alert) -> bool:
        if alert.kind in NOTICES:
            return alert.kind in self.on or (not self.on and alert.kind != SUMMARY)
        loudness = [status.lower() for status in SEVERITY]
        loud_enough = loudness.index(alert.severity) >= loudness.index(self.min_severity)
        return loud_enough and (not self.on or alert.kind in self.on)


def judged(report: Report, known: Mapping[str, str]) -> tuple[list[Alert], dict[str, str]]:
    """What is new since `known` (alert id → severity), and what is known from now on."""
    now_open = {alert.id: alert for alert in (_alert(each, report.timestamp) for each in _troubles(report))}
    new = [alert for alert in now_open.values() if known.get(alert.id) != alert.severity]
    ended = [_ended(each, severity, report.timestamp) for each, severity in known.items() if each not in now_open]
    return new + ended, {alert.id: alert.severity for alert in now_open.values()}


def summary(report: Report) -> Alert:
    """How everything does, in one notice: the worst first, with what may be done."""
    bad = [f"{each.subject} {each.check} {each.status}: {each.message}" for each in _troubles(report)]
    said = "; ".join([f"{report.overall}, {len(report.findings)} findings", *bad, *report.recommendations()])
    return Alert("summary:health", SUMMARY, "health", "info", "note", said, report.timestamp)


def send(alerts: Iterable[Alert], subscriptions: Sequence[Subscription]) -> list[str]:
    """Tell everybody who wants it; a channel that fails is told of in the log and fails nothing else."""
    failures = []
    for alert in alerts:
        for each in subscriptions:
            if each.wants(alert):
                failures += _sent(alert, each.channel)
    return failures


def _sent(alert: Alert, channel: Channel) -> list[str]:
    try:
        channel.send(alert)
    except Exception as error:  # noqa: BLE001 - a broken pager must not break the pipeline
        log.warning("alert not sent", alert=alert.id, channel=channel.describe(), error=str(error))
        return [f"{channel.describe()}: {error}"]
    return []


def _troubles(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.status != "HEALTHY" and finding.kind]


def _alert(finding: Finding, time: datetime) -> Alert:
    alert_id = f"{finding.kind}:{finding.subject}"
    return Alert(alert_id, finding.kind, finding.subject, finding.status.lower(), "open", finding.message, time)


def _ended(alert_id: str, severity: str, time: datetime) -> Alert:
    kind, _, subject = alert_id.partition(":")
    return Alert(alert_id, kind, subject, severity, "resolved", "it is well again", time)
