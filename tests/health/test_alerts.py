"""Alerts: each sent once, to those who want it, through channels that may fail."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from floodmark.health.alerts import Alert, AlertFile, AlertLog, Severity, Subscription, Webhook, judge, send, summary
from floodmark.health.report import Finding, Report, Status

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
OPEN = Alert("stale:orders", "stale", "orders", "warning", "open", "STALE", NOON)


@dataclass(frozen=True)
class Pager:
    """A channel that keeps what it hears, or fails."""

    alerts: list[Alert] = field(default_factory=list)
    fails: bool = False

    def describe(self) -> str:
        return "pager"

    def send(self, alert: Alert) -> None:
        if self.fails:
            raise ConnectionError("no answer")
        self.alerts.append(alert)


def test_an_alert_in_the_log_is_a_warning_with_all_its_parts(caplog: pytest.LogCaptureFixture) -> None:
    """Its id stays the same as long as the trouble lasts: whoever reads logs finds the end to a beginning."""
    over = replace(OPEN, status="resolved", message="it is well again")
    with caplog.at_level(logging.INFO):
        failures = send([OPEN, over], [Subscription(AlertLog())])
    assert failures == []
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("floodmark.health.alerts", "WARNING", "alert id=stale:orders severity=warning status=open message=STALE"),
        (
            "floodmark.health.alerts",
            "WARNING",
            'alert id=stale:orders severity=warning status=resolved message="it is well again"',
        ),
    ]


def report(status: Status) -> Report:
    return Report(NOON, (Finding("data_freshness", "orders", status, "STALE", {}, "stale"),))


@pytest.mark.parametrize(
    ("known", "status", "sent"),
    [
        ({}, "WARNING", [("warning", "open")]),
        ({"stale:orders": "warning"}, "WARNING", []),
        ({"stale:orders": "warning"}, "CRITICAL", [("critical", "open")]),
        ({"stale:orders": "warning"}, "HEALTHY", [("warning", "resolved")]),
        ({"stale:orders": "critical"}, "WARNING", []),
        ({"stale:orders": "critical"}, "UNKNOWN", []),
        ({"stale:orders": "warning"}, "UNKNOWN", []),
        ({"stale:orders": "unknown"}, "CRITICAL", [("critical", "open")]),
        ({}, "HEALTHY", []),
    ],
)
def test_an_alert_is_told_when_it_opens_worsens_or_ends(
    known: dict[str, str], status: Status, sent: list[tuple[str, str]]
) -> None:
    """And never twice."""
    alerts, _ = judge(report(status), known)
    assert [(alert.severity, alert.status) for alert in alerts] == sent


def test_what_was_told_is_known_the_next_time() -> None:
    """By its id and severity."""
    assert judge(report("WARNING"), {})[1] == {"stale:orders": "warning"}


@pytest.mark.parametrize("between", ["UNKNOWN", "WARNING"])
@pytest.mark.parametrize("min_severity", ["warning", "critical"])
def test_whoever_heard_of_trouble_hears_that_it_is_over(between: Status, min_severity: Severity) -> None:
    """Also where it was less bad, or could not be seen, before it ended."""
    pager, known = Pager(), {"stale:orders": "critical"}
    _, known = judge(report(between), known)
    alerts, known = judge(report("HEALTHY"), known)
    send(alerts, [Subscription(pager, (), min_severity)])
    assert ([alert.status for alert in pager.alerts], known) == (["resolved"], {})


@pytest.mark.parametrize(
    ("on", "min_severity", "hears"),
    [((), "warning", 1), (("stale",), "warning", 1), (("lag",), "warning", 0), ((), "critical", 0)],
)
def test_a_channel_hears_what_it_asked_for(on: tuple[str, ...], min_severity: Severity, hears: int) -> None:
    """Kinds, from a severity on."""
    pager = Pager()
    send([OPEN], [Subscription(pager, on, min_severity)])
    assert len(pager.alerts) == hears


@pytest.mark.parametrize(("min_severity", "statuses"), [("warning", ["open", "resolved"]), ("critical", [])])
def test_what_could_not_be_looked_at_is_as_loud_as_a_warning(min_severity: Severity, statuses: list[str]) -> None:
    """As it is for the whole report."""
    pager = Pager()
    alerts, known = judge(report("UNKNOWN"), {})
    send([*alerts, *judge(report("HEALTHY"), known)[0]], [Subscription(pager, (), min_severity)])
    assert [alert.status for alert in pager.alerts] == statuses


def test_the_summary_goes_to_channels_that_name_it() -> None:
    """It comes with every look, so nobody gets it unasked; no severity holds it back."""
    notice, unasked, asked = summary(report("WARNING")), Pager(), Pager()
    send([notice], [Subscription(unasked), Subscription(asked, ("summary",), "critical")])
    assert (unasked.alerts, asked.alerts) == ([], [notice])
    assert (notice.status, notice.message) == ("note", "WARNING, 1 finding; orders data_freshness WARNING: STALE")


def test_a_channel_that_fails_does_not_keep_the_others_from_hearing() -> None:
    """Nor does it raise."""
    pager = Pager()
    assert send([OPEN], [Subscription(Pager(fails=True)), Subscription(pager)]) == ["pager: no answer"]
    assert pager.alerts == [OPEN]


def test_a_file_gets_a_line_for_each_alert(tmp_path: Path) -> None:
    """JSON, one object per line."""
    channel = AlertFile(str(tmp_path / "logs" / "alerts.jsonl"))
    channel.send(OPEN)
    channel.send(OPEN)
    lines = (tmp_path / "logs" / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(each)["id"] for each in lines] == ["stale:orders", "stale:orders"]


class Answering(BaseHTTPRequestHandler):
    """Keeps the bodies it is sent; answers 500 to what it was told to refuse."""

    bodies: list[dict[str, str]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        self.send_response(500 if self.path == "/broken" else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Quiet."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A real web server on a free port."""
    httpd = HTTPServer(("127.0.0.1", 0), Answering)
    httpd.bodies = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_a_webhook_is_posted_the_alert_as_json(server: HTTPServer) -> None:
    """With a line of text for chat tools."""
    Webhook(f"http://127.0.0.1:{server.server_port}/hook").send(OPEN)
    (body,) = server.bodies  # type: ignore[attr-defined]
    assert (body["id"], body["severity"], body["text"]) == ("stale:orders", "warning", "[warning] stale orders: STALE")


def test_a_webhook_that_answers_with_an_error_has_failed(server: HTTPServer) -> None:
    """Its address is a secret, so it is not in what is logged."""
    failures = send([OPEN], [Subscription(Webhook(f"http://127.0.0.1:{server.server_port}/broken"))])
    assert failures == ["webhook: it answered 500"]
