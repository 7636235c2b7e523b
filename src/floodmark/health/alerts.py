"""Alerts: findings that somebody asked to hear of, each sent once when it opens, worsens or ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol

from floodmark.errors import ConfigError
from floodmark.health.checks import row_counts
from floodmark.health.report import Finding, Report
from floodmark.logs import get_logger
from floodmark.stores.extras import DELIVERIES, HEALTH, RecordExtras
from floodmark.stores.lease import change_record
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from smtplib import SMTP

    from floodmark.hwm import Json
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
RECORD = "floodmark.health"
NOTICES = ("run_started", "run_succeeded", "summary")
"""Kinds that are no trouble: somebody asked to hear when all is well, so no severity holds them back."""
SUMMARY = "summary"
"""Comes with every examination, so only a channel that names it hears it."""
PATIENCE_SECONDS = 10.0
Severity = Literal["warning", "critical"]


@dataclass(frozen=True)
class Alert:
    """A notice for somebody. `id` is the same as long as the trouble lasts; `status` says whether it began or ended.

    A "note" is no trouble, and its severity is "info".

    >>> Alert("lag:orders", "lag", "orders", "warning", "open", "3 h behind", datetime(2026, 1, 3)).serialize()["time"]
    '2026-01-03T00:00:00'
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
        """Send it, or raise."""


@dataclass(frozen=True)
class Subscription:
    """A channel and what it gets: alerts of the kinds in `on` (all, if it names none), from `min_severity` up.

    >>> late = Alert("lag:orders", "lag", "orders", "warning", "open", "3 h behind", datetime(2026, 1, 3))
    >>> Subscription(AlertLog(), min_severity="critical").wants(late)
    False
    """

    channel: Channel
    on: tuple[str, ...] = ()
    min_severity: Severity = "warning"

    def wants(self, alert: Alert) -> bool:
        if alert.kind in NOTICES:
            return alert.kind in self.on or (not self.on and alert.kind != SUMMARY)
        is_loud_enough = _rank(alert.severity) >= _rank(self.min_severity)
        return is_loud_enough and (not self.on or alert.kind in self.on)


def announce(
    report: Report,
    memory: HealthMemory,
    subscriptions: Sequence[Subscription],
    clock: Callable[[], float] = monotonic,
) -> HealthMemory:
    """Send each channel the alerts that it has not got yet, and give what health remembers from now on.

    What could not be sent is sent with the next examination. The end of an alert goes to channels that got the alert.

    >>> report = examine(Watch(), fm.stores.open("memory"), datetime.now(timezone.utc))
    >>> announce(report, HealthMemory(), [Subscription(AlertLog())]).alerts
    {}
    """
    groups: dict[str, list[Subscription]] = {}
    for each in subscriptions:
        groups.setdefault(_key(each.channel), []).append(each)
    known = {key: _alerts_heard_by(memory, key, group, report) for key, group in groups.items()}
    deliveries = {key: _deliver(report, group, known[key], clock) for key, group in groups.items()}
    return HealthMemory(row_counts(report), {alert.id: alert.severity for alert in _open(report)}, deliveries)


def judge(report: Report, known: Mapping[str, str]) -> tuple[list[Alert], dict[str, str]]:
    """The alerts that are new to somebody who got `known` (worst severity by alert id), and what is known from now on.

    >>> report = Report(datetime(2026, 1, 3), (Finding("lag", "orders", "CRITICAL", "90 h behind", kind="lag"),))
    >>> new, known = judge(report, known={})
    >>> [alert.severity for alert in new], judge(report, known)[0]
    (['critical'], [])
    """
    now_open = {alert.id: alert for alert in _open(report)}
    new = [alert for alert in now_open.values() if _rank(alert.severity) > _rank(known.get(alert.id))]
    resolved = [
        _resolution(each, severity, report.timestamp) for each, severity in known.items() if each not in now_open
    ]
    # the worst, not the last: whoever heard that it was critical has to hear of its end, however it ended
    return new + resolved, {each: _worse(known.get(each), alert.severity) for each, alert in now_open.items()}


def summary(report: Report) -> Alert:
    """The state of everything as one notice: the problems, the worst first, and what to do about them.

    >>> report = Report(datetime(2026, 1, 3), (Finding("lag", "orders", "CRITICAL", "90 h behind", kind="lag"),))
    >>> send([summary(report)], [Subscription(AlertLog(), on=("summary",))])
    []
    """
    bad = [f"{each.subject} {each.check} {each.status}: {each.message}" for each in _troubles(report)]
    count = "1 finding" if len(report.findings) == 1 else f"{len(report.findings)} findings"
    said = "; ".join([f"{report.overall}, {count}", *bad, *report.recommendations()])
    return Alert("summary:health", SUMMARY, "health", "info", "note", said, report.timestamp)


def send(alerts: Iterable[Alert], subscriptions: Sequence[Subscription]) -> list[str]:
    """Send each alert to every channel that takes it, and give the failures; each is also a warning in the log.

    >>> late = Alert("lag:orders", "lag", "orders", "warning", "open", "3 h behind", datetime(2026, 1, 3))
    >>> send([late], [Subscription(AlertFile(f"{folder}/alerts.jsonl"))])  # the channels that failed
    []
    """
    failures = []
    for alert in alerts:
        for each in subscriptions:
            if each.wants(alert):
                failures += _send_to(alert, each.channel)
    return failures


def _deliver(
    report: Report, group: Sequence[Subscription], known: Mapping[str, str], clock: Callable[[], float]
) -> dict[str, str]:
    """Send a channel what is new to it; what it knows of then. The rest is new to it the next time as well."""
    delivered, begin, channel = dict(known), clock(), group[0].channel
    for alert in judge(report, known)[0]:
        if alert.status == "open" and not any(each.wants(alert) for each in group):
            continue
        if not _send_to(alert, channel):
            delivered = _with_delivery(delivered, alert)
        elif clock() - begin >= PATIENCE_SECONDS:
            break  # a server that is down takes so long for every alert, and a loop waits
    return delivered


def _with_delivery(delivered: Mapping[str, str], alert: Alert) -> dict[str, str]:
    others = {each: severity for each, severity in delivered.items() if each != alert.id}
    return others if alert.status == "resolved" else {**others, alert.id: alert.severity}


def _alerts_heard_by(
    memory: HealthMemory, key: str, group: Sequence[Subscription], report: Report
) -> Mapping[str, str]:
    """What the channel has heard of and takes for open."""
    if memory.deliveries is not None:
        return memory.deliveries.get(key, {})
    # earlier versions kept what was open, had sent it to everybody who wanted it, and sent nothing UNKNOWN
    ends = [_resolution(*each, report.timestamp) for each in memory.alerts.items()]
    loud = [alert for alert in ends if alert.severity != "unknown"]
    return {alert.id: alert.severity for alert in loud if any(each.wants(alert) for each in group)}


def _key(channel: Channel) -> str:
    """By which deliveries are kept: its description; of a webhook, whose address is secret, with a digest of that."""
    if isinstance(channel, Webhook):
        return f"{channel.describe()} {sha256(channel.url.encode()).hexdigest()[:12]}"
    return channel.describe()


def _send_to(alert: Alert, channel: Channel) -> list[str]:
    try:
        channel.send(alert)
    except Exception as error:  # noqa: BLE001 - a broken pager must not break the pipeline
        log.warning("alert not sent", alert=alert.id, channel=channel.describe(), error=str(error))
        return [f"{channel.describe()}: {error}"]
    return []


def _rank(severity: str | None) -> int:
    """How loud it is; not to know is as loud as a warning, as it is for the whole."""
    return {"unknown": 1, "warning": 1, "critical": 2}.get(severity or "", 0)


def _worse(known: str | None, severity: str) -> str:
    return known if known is not None and _rank(known) >= _rank(severity) else severity


def _open(report: Report) -> list[Alert]:
    return [_alert(each, report.timestamp) for each in _troubles(report)]


def _troubles(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.status != "HEALTHY" and finding.kind]


def _alert(finding: Finding, time: datetime) -> Alert:
    alert_id = f"{finding.kind}:{finding.subject}"
    return Alert(alert_id, finding.kind, finding.subject, finding.status.lower(), "open", finding.message, time)


def _resolution(alert_id: str, severity: str, time: datetime) -> Alert:
    kind, _, subject = alert_id.partition(":")
    return Alert(alert_id, kind, subject, severity, "resolved", "it is well again", time)


@dataclass(frozen=True)
class HealthMemory:
    """What health remembers between two looks: row `counts` by table, the severity of open `alerts` by their id.

    `deliveries` has by channel the alerts that it takes for open, with the worst severity that it heard of; None, where
    an earlier version remembered, which did not keep it.

    >>> HealthMemory(counts={"orders": 120}).counts["orders"]
    120
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    alerts: Mapping[str, str] = field(default_factory=dict)
    deliveries: Mapping[str, Mapping[str, str]] | None = None


def recall(store: MarkStore) -> HealthMemory:
    """What the last examination remembered; empty, if there was none.

    >>> recall(fm.stores.open("memory")).counts
    {}
    """
    extras = (store.read(RECORD) or JobRecord(RECORD)).extras
    stored = extras.health or {}
    return HealthMemory(stored.get("counts", {}), stored.get("alerts", {}), extras.part(DELIVERIES))


def remember(store: MarkStore, memory: HealthMemory) -> None:
    """Save it for the next examination; if it is unchanged, nothing is written.

    >>> store = fm.stores.open("memory")
    >>> remember(store, HealthMemory(counts={"orders": 120}))
    >>> recall(store).counts
    {'orders': 120}
    """
    extras = RecordExtras({HEALTH: {"counts": dict(memory.counts), "alerts": dict(memory.alerts)}})
    if memory.deliveries is not None:  # a part of its own: earlier versions read `health` with these two fields only
        extras = extras.with_part(DELIVERIES, {key: dict(known) for key, known in memory.deliveries.items()})
    change_record(store, RECORD, lambda record: record if record.extras == extras else replace(record, extras=extras))


@dataclass(frozen=True)
class Webhook:
    """A POST of the alert as JSON; `text` is what chat tools show. The address may hold a secret and is never shown.

    `format` slack: the text alone, since Slack, and tools that take its format, refuse fields that they do not know.

    >>> Subscription(Webhook("https://hooks.example.com/T0/B0", format="slack")).channel.describe()
    'webhook'
    """

    url: str
    format: Literal["json", "slack"] = "json"

    def describe(self) -> str:
        return "webhook"

    def send(self, alert: Alert) -> None:
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        body = {"text": line(alert)} if self.format == "slack" else {**alert.serialize(), "text": line(alert)}
        request = Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")  # noqa: S310
        try:
            with urlopen(request, timeout=PATIENCE_SECONDS):  # noqa: S310 - the operator's own address
                return
        except HTTPError as error:
            error.close()
            raise ConnectionError(f"it answered {error.code}") from None


@dataclass(frozen=True)
class Email:
    """A mail by SMTP: in the clear without a login, over TLS from the first byte, or over TLS that STARTTLS begins.

    >>> Email(("data@example.com",), "etl@example.com", "mail", 587, "etl", "secret", security="starttls").describe()
    'mail to data@example.com'
    """

    to: tuple[str, ...]
    sender: str
    host: str = "localhost"
    port: int = 25
    user: str | None = None
    password: str | None = None
    security: Literal["none", "tls", "starttls"] = "none"

    def __post_init__(self) -> None:
        if self.user and self.security == "none":
            raise ConfigError(
                f"the login of {self.describe()} would go in the clear.",
                hint='security="starttls" (port 587) or security="tls" (port 465)',
            )

    def describe(self) -> str:
        return f"mail to {', '.join(self.to)}"

    def send(self, alert: Alert) -> None:
        from email.message import EmailMessage

        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = line(alert), self.sender, ", ".join(self.to)
        mail.set_content(json.dumps(alert.serialize(), indent=2, ensure_ascii=False))
        with self._connect() as server:
            if self.user:
                server.login(self.user, self.password or "")
            server.send_message(mail)

    def _connect(self) -> SMTP:
        """A connection over which a login may go. Raises where the server's certificate is not to be trusted."""
        import smtplib
        import ssl

        trusted = ssl.create_default_context()
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=PATIENCE_SECONDS, context=trusted)
        server = smtplib.SMTP(self.host, self.port, timeout=PATIENCE_SECONDS)
        try:
            if self.security == "starttls":
                server.starttls(context=trusted)
        except BaseException:
            server.close()
            raise
        return server


@dataclass(frozen=True)
class AlertFile:
    """One JSON object per line.

    >>> Subscription(AlertFile("alerts.jsonl"), min_severity="critical").channel.describe()
    'file alerts.jsonl'
    """

    path: str

    def describe(self) -> str:
        return f"file {self.path}"

    def send(self, alert: Alert) -> None:
        file = Path(self.path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(alert.serialize(), ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class AlertLog:
    """A warning in the log.

    >>> Subscription(AlertLog(), on=("lag",)).channel.describe()
    'log'
    """

    def describe(self) -> str:
        return "log"

    def send(self, alert: Alert) -> None:
        log.warning("alert", id=alert.id, severity=alert.severity, status=alert.status, message=alert.message)


def line(alert: Alert) -> str:
    """The alert in one line."""
    word = "resolved" if alert.status == "resolved" else alert.severity
    return f"[{word}] {alert.kind} {alert.subject}: {alert.message}"
