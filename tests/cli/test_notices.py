"""The notifications of a workflow's file, told through the alert channels of the project."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
LAYERS = """from pathlib import Path


def bronze():
    pass


def silver():
    if Path("broken").exists():
        raise RuntimeError("silver broke")
"""
TASKS = [{"task_key": "bronze"}, {"task_key": "silver", "depends_on": ["bronze"]}]
ALERTS = "alerts: [{to: file, path: alerts.jsonl}]\n"


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two tasks, of which the second breaks while there is a file `broken`."""
    import sys

    monkeypatch.delitem(sys.modules, "layers", raising=False)
    (folder / "layers.py").write_text(LAYERS)
    (folder / "floodmark.yaml").write_text(
        f"store: sqlite:///marks.db\ntasks: {{bronze: 'layers:bronze', silver: 'layers:silver'}}\n{ALERTS}"
    )
    return folder


def asking(home: Path, **wishes: object) -> None:
    """The workflow's file, with what it asks to be told."""
    (home / "daily.json").write_text(json.dumps({"tasks": TASKS, **wishes}))


def alerts_sent(home: Path) -> list[tuple[str, str, str]]:
    """What the channel heard so far: kind, status, subject."""
    file = home / "alerts.jsonl"
    heard = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(alert["kind"], alert["status"], alert["subject"]) for alert in heard]


def test_a_failure_is_told_once_and_so_is_its_end(home: Path, floodmark: Floodmark) -> None:
    """Two runs that fail in the same task are one trouble; the run that succeeds ends it."""
    asking(home, email_notifications={"on_failure": ["team@example.org"]})
    (home / "broken").touch()
    assert [floodmark("workflow", "run", "daily.json").code for _ in range(2)] == [3, 3]
    assert alerts_sent(home) == [("failed_run", "open", "workflow daily")]
    (home / "broken").unlink()
    assert floodmark("workflow", "run", "daily.json").code == 0
    assert alerts_sent(home)[1:] == [("failed_run", "resolved", "workflow daily")]


def test_an_alert_says_which_task_failed_and_why(home: Path, floodmark: Floodmark) -> None:
    """The person on call need not look for it."""
    asking(home, webhook_notifications={"on_failure": [{"id": "pager"}]})
    (home / "broken").touch()
    floodmark("workflow", "run", "daily.json")
    (line,) = (home / "alerts.jsonl").read_text().splitlines()
    assert json.loads(line)["message"] == "silver FAILED: silver broke"


def test_a_start_and_a_success_are_told_where_the_file_asks_for_them(home: Path, floodmark: Floodmark) -> None:
    """They are no trouble, so the least severity of a channel does not hold them back."""
    asking(home, webhook_notifications={"on_start": [{"id": "x"}], "on_success": [{"id": "x"}]})
    floodmark("workflow", "run", "daily.json")
    assert alerts_sent(home) == [("run_started", "note", "workflow daily"), ("run_succeeded", "note", "workflow daily")]


def test_a_file_that_asks_for_nothing_is_told_of_nothing(home: Path, floodmark: Floodmark) -> None:
    """Health finds what failed by itself."""
    asking(home)
    (home / "broken").touch()
    floodmark("workflow", "run", "daily.json")
    assert alerts_sent(home) == []


def test_a_task_may_ask_for_itself(home: Path, floodmark: Floodmark) -> None:
    """As in Databricks, where each task has notifications of its own."""
    wish = {"email_notifications": {"on_failure": ["a@example.org"]}}
    asking(home, tasks=[TASKS[0], {**TASKS[1], **wish}])
    (home / "broken").touch()
    floodmark("workflow", "run", "daily.json")
    (home / "broken").unlink()
    floodmark("workflow", "run", "daily.json")
    subject = "task daily.silver"
    assert alerts_sent(home) == [("failed_run", "open", subject), ("failed_run", "resolved", subject)]


def test_validate_says_that_nobody_would_hear(home: Path, floodmark: Floodmark) -> None:
    """A wish without a channel is a pager that never rings."""
    asking(home, email_notifications={"on_failure": ["team@example.org"]})
    (home / "floodmark.yaml").write_text((home / "floodmark.yaml").read_text().replace(ALERTS, ""))
    said = floodmark("workflow", "validate", "daily.json", "--json")
    assert json.loads(said.out)["unused"] == ["notifications (the project file has no `alerts`: nobody would be told)"]


class Mailbox(socketserver.StreamRequestHandler):
    """Speaks as much SMTP as it takes to receive mail; the server keeps whom it was for."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        in_text = False
        while line := self.rfile.readline().decode().strip("\r\n"):
            if in_text:
                break
            if line.upper().startswith("RCPT TO:"):
                self.server.recipients.append(line[8:].strip("<>"))  # type: ignore[attr-defined]
            in_text = line.upper() == "DATA"
            self.wfile.write(b"354 go on\r\n" if in_text else b"250 ok\r\n")
        while self.rfile.readline().strip() != b".":
            pass
        self.wfile.write(b"250 kept\r\n")
        self.rfile.readline()
        self.wfile.write(b"221 bye\r\n")


@pytest.fixture
def mail() -> Iterator[socketserver.TCPServer]:
    """A real mail server on a free port."""
    server = socketserver.TCPServer(("127.0.0.1", 0), Mailbox)
    server.recipients = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_mail_goes_to_the_channels_addresses_and_to_those_of_the_file(
    home: Path, floodmark: Floodmark, mail: socketserver.TCPServer
) -> None:
    """Each once."""
    port = mail.server_address[1]
    channel = f'{{to: email, url: "smtp://127.0.0.1:{port}", address: [ops@example.org], sender: fm@example.org}}'
    project = (home / "floodmark.yaml").read_text().replace(ALERTS, f"alerts: [{channel}]\n")
    (home / "floodmark.yaml").write_text(project)
    asking(home, email_notifications={"on_failure": ["team@example.org", "ops@example.org"]})
    (home / "broken").touch()
    floodmark("workflow", "run", "daily.json")
    assert mail.recipients == ["ops@example.org", "team@example.org"]  # type: ignore[attr-defined]
