"""Logging: the standard tree decides, the library keeps quiet, the command line adds one handler."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest

from floodmark.logs import configure, get_logger, redact


def test_the_standard_tree_controls_what_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """A host silences or opens a module by the level of its standard logger, as with any library."""
    log = get_logger("floodmark.example.part")
    logging.getLogger("floodmark.example").setLevel(logging.WARNING)
    log.info("not heard")
    logging.getLogger("floodmark.example").setLevel(logging.DEBUG)
    log.info("heard", job="orders")
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("floodmark.example.part", "heard job=orders")
    ]


def test_a_record_carries_its_facts_beside_the_line(caplog: pytest.LogCaptureFixture) -> None:
    """A host with a formatter of its own gets them apart."""
    logging.getLogger("floodmark").setLevel(logging.INFO)
    get_logger("jobs").bind(job="orders").warning("took 5% of it", rows=3)
    [record] = caplog.records
    assert (record.event, record.facts) == ("took 5% of it", {"job": "orders", "rows": 3})  # type: ignore[attr-defined]


def test_as_a_library_nothing_is_set_up() -> None:
    """No handler, no root logger touched, structlog's configuration as it was; in an interpreter of its own."""
    program = (
        "import logging, structlog, floodmark.jobs.running, floodmark.logs as logs\n"
        "log = logs.get_logger('floodmark.x'); logging.getLogger('floodmark').setLevel(10); log.warning('hello', a=1)\n"
        "print(logging.getLogger().handlers, logging.getLogger('floodmark').handlers, structlog.is_configured())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] [] False\n"


def test_structlog_is_not_loaded_for_a_line_that_nobody_hears() -> None:
    """Importing it costs more than a whole `marks show`."""
    program = (
        "import sys, floodmark.logs as logs; logs.get_logger('x').info('quiet'); print('structlog' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_json_lines_are_one_object_each() -> None:
    """What log collectors read."""
    stream = io.StringIO()
    configure("info", "json", stream=stream)
    get_logger("jobs").info("run done", rows=3)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["event"], line["rows"]) == ("info", "floodmark.jobs", "run done", 3)


def test_configuring_twice_leaves_one_handler() -> None:
    """And never removes somebody else's."""
    theirs = logging.NullHandler()
    logging.getLogger("floodmark").addHandler(theirs)
    configure("info", stream=io.StringIO())
    configure("debug", stream=io.StringIO())
    handlers = logging.getLogger("floodmark").handlers
    assert (len(handlers), handlers[0]) == (2, theirs)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("postgresql://u:p%40ss@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("to s3a://key:secret@b/x and pg://a:b@c", "to s3a://key:***@b/x and pg://a:***@c"),
        ("jdbc:postgresql://h/db?user=u&password=pw&ssl=true", "jdbc:postgresql://h/db?user=u&password=***&ssl=true"),
        ("sqlite:///state/marks.db", "sqlite:///state/marks.db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
    ],
)
def test_passwords_are_redacted(text: str, redacted: str) -> None:
    """In URLs and in parameters; the rest stays readable."""
    assert redact(text) == redacted
