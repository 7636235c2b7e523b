"""How Floodmark logs: structlog over the standard `floodmark.<module>` loggers, whose settings decide what is heard.

As a library nothing here adds a handler, touches the root logger or configures structlog; `configure` is the command
line's. structlog is loaded when a line is really written: importing it costs more than a whole `floodmark marks show`.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger


LEVELS = ("debug", "info", "warning", "error")
Format = Literal["json", "pretty"]

# A path library makes one slash of two, so one is enough. A number in front of a path is a port. Each part has a bound:
# without it a long text without blanks takes minutes.
_URL_PASSWORD = re.compile(
    r"(?P<before>\b[a-zA-Z][\w+.-]{0,30}:/{1,3}[^\s/@:]{0,300}:)(?!\d{1,5}(?:[/?#]|$))[^\s\"'<>]{1,300}(?=@)"
)
_NAMED_SECRET = re.compile(r"(?i)(?P<before>\b(?:password|passwd|pwd|secret|token|api_?key|sslpassword)=)[^\s&;'\"]+")


class LineKeeper(Protocol):
    """Takes every line of a run, whatever the standard loggers let through."""

    run: str

    def add(self, level: str, logger: str, event: str, facts: Mapping[str, object]) -> None:
        """Keep one line; it must not fail."""


_keeper: ContextVar[LineKeeper | None] = ContextVar("line_keeper", default=None)


@contextmanager
def keeping_lines(keeper: LineKeeper) -> Iterator[None]:
    """Hand every line of this block, in this thread, to the keeper as well."""
    token = _keeper.set(keeper)
    try:
        yield
    finally:
        _keeper.reset(token)


class Logger:
    """A structlog logger that costs nothing until the standard logger of its name lets a line through."""

    def __init__(self, name: str, facts: Mapping[str, object] | None = None) -> None:
        self.name = name
        self._facts = dict(facts or {})
        self._standard = logging.getLogger(name)

    def bind(self, **facts: object) -> Logger:
        """The same logger, with these facts in every line."""
        return Logger(self.name, {**self._facts, **facts})

    def debug(self, event: str, **facts: object) -> None:
        """For whoever looks for a fault."""
        self._log(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: object) -> None:
        """What an operator wants to read later."""
        self._log(logging.INFO, event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Something went on, but not as it should."""
        self._log(logging.WARNING, event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Something did not go on."""
        self._log(logging.ERROR, event, facts)

    def exception(self, event: str, **facts: object) -> None:
        """An error, with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, event, {**facts, "exc_info": True})

    def _log(self, level: int, event: str, facts: Mapping[str, object]) -> None:
        keeper = _keeper.get()
        if keeper is not None:
            keeper.add(logging.getLevelName(level).lower(), self.name, event, {**self._facts, **facts})
        if self._standard.isEnabledFor(level):
            _structlog_logger(self._standard).log(level, event, **{**self._facts, **facts})


def get_logger(name: str) -> Logger:
    """The logger of a module: `get_logger(__name__)`; other names are put under `floodmark.`."""
    return Logger(name if name == "floodmark" or name.startswith("floodmark.") else f"floodmark.{name}")


def redact(text: str, *secrets: str) -> str:
    """The text with these secrets, the passwords of URLs and those of `password=…` pairs replaced by ***."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(secret, "***")
    return _NAMED_SECRET.sub(r"\g<before>***", _URL_PASSWORD.sub(r"\g<before>***", text))


def without_login(url: str) -> str:
    """The URL without the account that may stand before its host."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def without_jdbc_login(url: str) -> str:
    """The address of a JDBC URL alone: what stands before an @ or behind a ? or ; may be a login."""
    head = re.split(r"[?;]", url, maxsplit=1)[0]
    return f"jdbc:{head.split(':')[1]}:{head.rsplit('@', 1)[1]}" if "@" in head else head


def configure(
    level: str = "info",
    style: Format = "pretty",
    *,
    stream: TextIO | None = None,
    scrub: Callable[[str], str] = redact,
) -> None:
    """One handler on stderr for the `floodmark` logger; called by the command line, again replaces its own handler."""
    logger = logging.getLogger("floodmark")
    handler = _CommandLineHandler(stream)
    handler.setFormatter(_LineFormatter(style, scrub))
    logger.handlers = [old for old in logger.handlers if not isinstance(old, _CommandLineHandler)] + [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class _CommandLineHandler(logging.StreamHandler):  # type: ignore[type-arg] # not generic before Python 3.11
    """A type of its own, so that `configure` never removes a handler that somebody else added.

    Without a stream it writes to what stderr is at that moment: a display puts itself in its place.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__(stream or sys.stderr)
        self._follows_stderr = stream is None

    def emit(self, record: logging.LogRecord) -> None:
        if self._follows_stderr:
            self.stream = sys.stderr
        super().emit(record)


class _LineFormatter(logging.Formatter):
    """One line per record: an event and its facts, as JSON or for eyes."""

    def __init__(self, style: Format, scrub: Callable[[str], str]) -> None:
        super().__init__()
        self._as_json, self._scrub = style == "json", scrub

    def format(self, record: logging.LogRecord) -> str:
        return self._scrub(self._json(record) if self._as_json else self._pretty(record))

    def _json(self, record: logging.LogRecord) -> str:
        import json

        facts = {"timestamp": self._time(record), "level": record.levelname.lower(), "logger": record.name}
        keeper = _keeper.get()
        facts |= {"run": keeper.run} if keeper else {}
        facts |= {"event": record.__dict__.get("event", record.getMessage()), **record.__dict__.get("facts", {})}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str)

    def _pretty(self, record: logging.LogRecord) -> str:
        line = f"{self._time(record)} {record.levelname.lower():<7} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    @staticmethod
    def _time(record: logging.LogRecord) -> str:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")


def _structlog_logger(standard: logging.Logger) -> BoundLogger:
    import structlog

    bound: BoundLogger = structlog.wrap_logger(
        standard, processors=[_redact_facts, _to_record], wrapper_class=structlog.stdlib.BoundLogger, context_class=dict
    )
    return bound


def _redact_facts(_logger: object, _method: str, facts: MutableMapping[str, object]) -> MutableMapping[str, object]:
    return {name: redact(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}


def _to_record(
    _logger: object, _method: str, facts: MutableMapping[str, object]
) -> tuple[tuple[str], dict[str, object]]:
    """A record that reads well under any host's formatter, with the facts beside it for those that want them apart."""
    event, exc_info = str(facts.pop("event")), facts.pop("exc_info", None)
    line = " ".join([event, *(f"{name}={_fact_text(fact)}" for name, fact in facts.items())])
    return (line,), {"exc_info": exc_info, "extra": {"event": event, "facts": dict(facts)}}


def _fact_text(fact: object) -> str:
    text = str(fact)
    return f'"{text}"' if " " in text else text
