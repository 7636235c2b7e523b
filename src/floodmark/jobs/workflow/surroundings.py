"""What a task may use while it runs: the session, the marks, the parameters of its job, and what other tasks said.

`{{job.parameters.day}}`, `{{tasks.look.values.rows}}` and their like, which a file may have wherever it has a text, are
filled in from here when a task begins.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.hwm import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore


REFERENCE = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}")
OUTCOME = "outcome"
"""Under which a condition leaves how it was judged, beside the values of tasks."""
RESULT_STATES = {"SKIPPED": "upstream_failed"}
KNOWN = (
    "job.parameters.NAME, job.name, job.run_id, job.start_time.iso_date, task.name, "
    "tasks.T.values.K, tasks.T.result_state, input"
)


class TaskValues:
    """What tasks of one run have said, by task and key; tasks run side by side."""

    def __init__(self, values: Mapping[str, Mapping[str, Json]] | None = None) -> None:
        self._values = {task: dict(said) for task, said in (values or {}).items()}
        self._lock = threading.Lock()

    def set(self, task: str, key: str, value: Json) -> None:
        """Keep a value, which has to be JSON: it is stored with the run. Raises ConfigError."""
        try:
            kept = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"task value '{key}' of '{task}' is not JSON: {error}.", hint="keep text or numbers"
            ) from error
        with self._lock:
            self._values.setdefault(task, {})[key] = kept

    def get(self, task: str, key: str) -> Json:
        """What was said. Raises KeyError."""
        return self._values[task][key]

    def all(self) -> dict[str, dict[str, Json]]:
        with self._lock:
            return {task: dict(said) for task, said in self._values.items()}


@dataclass(frozen=True)
class Surroundings:
    """What a task may use: the session (started when it is asked for), the marks, and how long it may take."""

    session: Callable[[], SparkSession]
    store: MarkStore
    timeout_seconds: float | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the job: its file's defaults, with what was given for this run over them."""
    values: TaskValues = field(default_factory=TaskValues)
    job: str = ""
    run: str = ""
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    task: str = ""
    input: Json = None
    """Of one turn of a `for_each_task`."""
    states: Mapping[str, str] = field(default_factory=dict)
    """By task of this run how it ended."""
    jobs: tuple[str, ...] = ()
    """The jobs that one after the other have begun this one."""

    def of_task(self, task: str) -> Surroundings:
        return replace(self, task=task)

    def fill(self, text: str) -> str:
        """The text with every reference in its place. Raises ConfigError for one that means nothing here."""
        return REFERENCE.sub(lambda found: _text(self._value(found[1])), text)

    def fill_all(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self.fill(text) for name, text in texts.items()}

    def _value(self, reference: str) -> Json:
        head, _, rest = reference.partition(".")
        try:
            if head == "tasks":
                task, _, key = rest.partition(".")
                return (
                    self.values.get(task, key.removeprefix("values.")) if key != "result_state" else self._end_of(task)
                )
            if head == "input":
                return _inside(self.input, rest)
            return self._plain()[reference]
        except (KeyError, IndexError, TypeError):
            where = f" in task '{self.task}'" if self.task else ""
            raise ConfigError(f"{{{{{reference}}}}}{where} means nothing here.", hint=f"known: {KNOWN}") from None

    def _end_of(self, task: str) -> str:
        """How a task ended, in the words of Databricks. Raises KeyError for one that is not over."""
        return RESULT_STATES.get(self.states[task]) or self.states[task].lower()

    def _plain(self) -> dict[str, Json]:
        moments: dict[str, Json] = {
            "job.start_time.iso_date": f"{self.started:%Y-%m-%d}",
            "job.start_time.iso_datetime": self.started.isoformat(),
            "job.start_time.timestamp_ms": int(self.started.timestamp() * 1000),
        }
        names: dict[str, Json] = {"job.name": self.job, "job.id": self.job, "job.run_id": self.run}
        parameters: dict[str, Json] = {f"job.parameters.{name}": value for name, value in self.parameters.items()}
        return {**names, **moments, **parameters, "task.name": self.task}


def _inside(value: Json, path: str) -> Json:
    """A part of a value: `input.city` of an input that is an object."""
    found: Any = value
    for name in path.split(".") if path else ():
        found = found[int(name)] if isinstance(found, list) else found[name]
    return found  # type: ignore[no-any-return]


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
