"""A mail server of a few commands, as a client meets it: in the clear, over TLS at once, or with STARTTLS."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

GREETING = "220 mail.test ESMTP"


@dataclass
class Session:
    """What one client said: each command, whether it came over TLS, and the mail."""

    commands: list[str] = field(default_factory=list)
    login: str | None = None
    login_over_tls: bool = False
    mail: str = ""


@dataclass
class MailServer:
    """Answers one client after the other, until it is closed."""

    listener: socket.socket
    context: ssl.SSLContext | None = None
    implicit: bool = False
    sessions: list[Session] = field(default_factory=list)

    @property
    def port(self) -> int:
        number: int = self.listener.getsockname()[1]
        return number

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with ExitStack() as opened, suppress(OSError, ssl.SSLError):
                    self._answer(opened.enter_context(connection), opened)

    def _answer(self, connection: socket.socket, opened: ExitStack) -> None:
        is_tls = self.implicit and self.context is not None
        if is_tls and self.context is not None:
            connection = opened.enter_context(self.context.wrap_socket(connection, server_side=True))
        session = Session()
        self.sessions.append(session)
        _say(connection, GREETING)
        lines = opened.enter_context(connection.makefile("rb"))
        while (line := lines.readline().decode().rstrip("\r\n")) != "":
            session.commands.append(line.split(" ")[0].upper())
            word = session.commands[-1]
            if word == "STARTTLS" and self.context is not None:
                _say(connection, "220 go ahead")
                connection = opened.enter_context(self.context.wrap_socket(connection, server_side=True))
                lines, is_tls = opened.enter_context(connection.makefile("rb")), True
            elif word == "EHLO":
                extensions = ["AUTH PLAIN", *(["STARTTLS"] if self.context and not is_tls else [])]
                _say(connection, *[f"250-{each}" for each in ["mail.test", *extensions]], "250 8BITMIME")
            elif word == "AUTH":
                session.login = base64.b64decode(line.split(" ")[-1]).decode().replace("\0", ":").strip(":")
                session.login_over_tls = is_tls
                _say(connection, "235 welcome")
            elif word == "DATA":
                _say(connection, "354 go on")
                session.mail = _mail(iter(lines.readline, b""))
                _say(connection, "250 taken")
            else:
                _say(connection, "221 bye" if word == "QUIT" else "250 fine")


def _mail(lines: Iterator[bytes]) -> str:
    kept = []
    for line in lines:
        if line == b".\r\n":
            break
        kept.append(line.decode())
    return "".join(kept)


def _say(connection: socket.socket, *lines: str) -> None:
    connection.sendall("".join(f"{line}\r\n" for line in lines).encode())


@contextmanager
def mail_server(context: ssl.SSLContext | None = None, *, implicit: bool = False) -> Iterator[MailServer]:
    """A server on a free port."""
    server = MailServer(socket.create_server(("127.0.0.1", 0)), context, implicit)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    thread.join(5)
