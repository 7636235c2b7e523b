"""Where alerts go: a webhook, mail, a file of JSON lines, the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.logs import get_logger

if TYPE_CHECKING:
    from floodmark.health.alerts import Alert

log = get_logger(__name__)
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Webhook:
    """A POST of the alert as JSON; `text` is what chat tools show. The address may hold a secret and is never told."""

    url: str

    def describe(self) -> str:
        return "webhook"

    def send(self, alert: Alert) -> None:
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        body = {**alert.serialize(), "text": line(alert)}
        request = Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")  # noqa: S310
        try:
            with urlopen(request, timeout=PATIENCE_SECONDS):  # noqa: S310 - the operator's own address
                return
        except HTTPError as error:
            error.close()
            raise ConnectionError(f"it answered {error.code}") from None


@dataclass(frozen=True)
class Email:
    """A mail by SMTP."""

    to: tuple[str, ...]
    sender: str
    host: str = "localhost"
    port: int = 25
    user: str | None = None
    password: str | None = None
    starttls: bool = False

    def describe(self) -> str:
        return f"mail to {', '.join(self.to)}"

    def send(self, alert: Alert) -> None:
        import smtplib
        from email.message import EmailMessage

        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = line(alert), self.sender, ", ".join(self.to)
        mail.set_content(json.dumps(alert.serialize(), indent=2, ensure_ascii=False))
        with smtplib.SMTP(self.host, self.port, timeout=PATIENCE_SECONDS) as server:
            if self.starttls:
                server.starttls()
            if self.user:
                server.login(self.user, self.password or "")
            server.send_message(mail)


@dataclass(frozen=True)
class AlertFile:
    """One JSON object per line."""

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
    """A warning in the log."""

    def describe(self) -> str:
        return "log"

    def send(self, alert: Alert) -> None:
        log.warning("alert", id=alert.id, severity=alert.severity, status=alert.status, message=alert.message)


def line(alert: Alert) -> str:
    """The alert in one line."""
    word = "resolved" if alert.status == "resolved" else alert.severity
    return f"[{word}] {alert.kind} {alert.subject}: {alert.message}"
