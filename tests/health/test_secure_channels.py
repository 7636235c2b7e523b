"""Alerts over TLS, to real servers with certificates of a CA that only these tests trust."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from floodmark.errors import ConfigError
from floodmark.health.alerts import Alert, Email, Subscription, Webhook, send
from tests.health.mail_server import MailServer, mail_server

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
ALERT = Alert("lag:orders", "lag", "orders", "critical", "open", "3 days behind", NOON)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Signs the servers' certificates."""
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process trusts the authority, as an operator makes it do: by the variable that OpenSSL reads."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


@pytest.fixture(scope="module")
def certified(authority: trustme.CA) -> ssl.SSLContext:
    """A server's side of TLS, for localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


def mailed_by(server: MailServer, security: Any, user: str | None = "me") -> list[str]:  # noqa: ANN401 - a literal
    channel = Email(("ops@test",), "floodmark@test", "localhost", server.port, user, "hunter2", security)
    return send([ALERT], [Subscription(channel)])


@pytest.mark.usefixtures("trusting")
def test_a_mail_over_starttls_logs_in_only_once_the_line_is_safe(certified: ssl.SSLContext) -> None:
    """The server offers it, the client asks for it, and the login comes after it."""
    with mail_server(certified) as server:
        assert mailed_by(server, "starttls") == []
    [session] = server.sessions
    assert session.commands[:4] == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
    assert (session.login, session.login_over_tls) == ("me:hunter2", True)
    assert "Subject: [critical] lag orders: 3 days behind" in session.mail


@pytest.mark.usefixtures("trusting")
def test_a_mail_over_tls_from_the_first_byte_arrives(certified: ssl.SSLContext) -> None:
    """What is called `smtps`."""
    with mail_server(certified, implicit=True) as server:
        assert mailed_by(server, "tls") == []
    [session] = server.sessions
    assert (session.login_over_tls, "3 days behind" in session.mail) == (True, True)


def test_a_server_whose_certificate_nobody_vouches_for_gets_no_login(certified: ssl.SSLContext) -> None:
    """Neither the login nor the mail; the run goes on, and the failure is told."""
    with mail_server(certified) as server:
        [failure] = mailed_by(server, "starttls")
    assert "certificate verify failed" in failure
    assert [session.login for session in server.sessions] == [None]


@pytest.mark.usefixtures("trusting")
def test_a_server_that_offers_no_starttls_gets_no_login() -> None:
    """Somebody in between may have taken the offer away."""
    with mail_server() as server:
        [failure] = mailed_by(server, "starttls")
    assert "STARTTLS" in failure
    assert ([session.login for session in server.sessions], server.sessions[0].mail) == ([None], "")


def test_a_mail_without_a_login_may_go_in_the_clear() -> None:
    """To the relay of the own machine."""
    with mail_server() as server:
        assert mailed_by(server, "none", user=None) == []
    assert (server.sessions[0].login, "3 days behind" in server.sessions[0].mail) == (None, True)


def test_a_login_that_would_go_in_the_clear_is_refused() -> None:
    """When the channel is made, before any server hears of it; the password is not in the message."""
    with pytest.raises(ConfigError, match="in the clear") as refused:
        Email(("ops@test",), "floodmark@test", user="me", password="hunter2")
    assert "starttls" in (refused.value.hint or "")
    assert "hunter2" not in str(refused.value)


class Hook(BaseHTTPRequestHandler):
    """Keeps what it is posted."""

    bodies: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Quietly."""


@pytest.fixture
def hook(certified: ssl.SSLContext) -> Iterator[str]:
    """The address of a webhook over https."""
    Hook.bodies = []
    server = HTTPServer(("127.0.0.1", 0), Hook)
    server.socket = certified.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("trusting")
def test_a_webhook_over_https_is_posted_the_alert(hook: str) -> None:
    """To a server whose authority is trusted; Slack gets the text alone."""
    assert send([ALERT], [Subscription(Webhook(hook)), Subscription(Webhook(hook, "slack"))]) == []
    assert [body.get("id") for body in Hook.bodies] == ["lag:orders", None]


def test_a_webhook_that_nobody_vouches_for_hears_nothing(hook: str) -> None:
    """The alert may name tables and rows."""
    [failure] = send([ALERT], [Subscription(Webhook(hook))])
    assert ("certificate verify failed" in failure, Hook.bodies) == (True, [])
