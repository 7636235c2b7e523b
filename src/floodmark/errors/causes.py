"""What lies behind an error of Spark, of a driver or of a user's code: what a person did, where, and what to try next.

Spark hands on an executor's error as text: a Python traceback within a Java stack within another one. All of it is
taken apart here and nowhere else; the whole text stays in the debug log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from floodmark.errors.known_causes import KNOWN, Blame
from floodmark.errors.tracebacks import JAVA_FRAME, TRACEBACK, cut_short, place_in_code, raised_in_worker

COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""Some libraries write for terminals only."""
CAUSED_BY = re.compile(r"^\s*Caused by: (.*)$", re.MULTILINE)
JAVA_CLASS = re.compile(r"^(?:[a-z][\w$]*\.){2,}([A-Z][\w$]*)(?::\s*|$)")
SHELLS = (
    re.compile(r"^An error occurred while calling \S+\s*:?\s*"),
    re.compile(
        r"^(?:\S+Exception: )?Job aborted due to stage failure: .*?most recent failure: [^\n]*?\(TID \d+\) \([^)]*\): "
    ),
)
CONDITION = re.compile(r"^\[(?P<name>[A-Z][A-Z0-9_.]*)\]\s*")
STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


@dataclass(frozen=True)
class Cause:
    """Why something failed, in a line that a person can act on; `hint` is empty where nothing better is known."""

    reason: str
    hint: str = ""
    blame: Blame = "other"


def cause_of(error: BaseException) -> Cause:
    """What is behind the error: what the machine lacks, a line of the user's own code, or else its own words."""
    text = full_text(error)
    for known in KNOWN:
        if (match := re.search(known.pattern, text)) is not None:
            return Cause(_at(known.reason(match, text), error), known.hint(match), known.blame)
    raised = raised_in_worker(text)
    if raised is not None:
        return Cause(raised, "fix that line" if raised.endswith(")") else "fix the function", "code")
    reason, blame = described(text, error), _blame_of(text)
    if blame == "values":
        return Cause(_at(reason.split(" If necessary set ")[0], error), VALUES_HINT, blame)
    return Cause(_at(reason, error), "", blame)


def _at(reason: str, error: BaseException) -> str:
    """The reason with the line of the user's own code that the error passed through."""
    place = place_in_code(error.__traceback__)
    return f"{reason} ({place})" if place and f"({place}" not in reason else reason


VALUES_HINT = "`try_cast`, `try_divide` and their like give NULL where a value does not fit"


def reason_of(error: BaseException) -> str:
    """The cause in one line, without a hint."""
    return cause_of(error).reason


def full_text(error: BaseException) -> str:
    """All that the error and those behind it say; Spark's own keeps its Java stack apart."""
    parts: list[str] = []
    seen: set[int] = set()
    around: BaseException | None = error
    while around is not None and id(around) not in seen:
        seen.add(id(around))
        parts += [str(around), str(getattr(around, "_stackTrace", None) or getattr(around, "stackTrace", "") or "")]
        around = around.__cause__ or getattr(around, "cause", None)
    return COLOUR.sub("", "\n".join(dict.fromkeys(part for part in parts if part.strip())))


def described(text: str, error: BaseException) -> str:
    """The words of the error itself: of the deepest cause where Java nests several, without codes and stacks."""
    own = _first_lines(COLOUR.sub("", str(error)))
    causes = [said for said in CAUSED_BY.findall(text) if not _says_nothing(said)]
    said = _plain(causes[-1]) if causes and _is_shell(own) else _plain(own)
    name = "" if _is_of_spark(error) else type(error).__name__
    whole = f"{name}: {said}" if name and not said.startswith(name) else said
    return cut_short(whole.strip(": ")) or type(error).__name__


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _is_shell(line: str) -> bool:
    """Whether the line only says that something within failed."""
    shells = (
        "Job aborted",
        "An error occurred while calling",
        "Task failed while",
        "[TASK_WRITE_FAILED]",
        "Exception ",
    )
    return any(shell in line for shell in shells) or not line.strip()


def _says_nothing(cause: str) -> bool:
    return cause.startswith(("org.apache.spark.SparkException: Job aborted", "java.lang.reflect.")) or ":" not in cause


def _plain(said: str) -> str:
    """Without what only says where it failed, the class in front, Spark's condition and SQL state, and the plan."""
    for shell in SHELLS:
        said = shell.sub("", said.strip())
    while (shorter := JAVA_CLASS.sub("", said)) != said:
        said = shorter
    return CONDITION.sub("", STATE.sub("", said)).strip()


def _first_lines(text: str, lines: int = 2) -> str:
    kept: list[str] = []
    for line in text.strip().splitlines():
        if JAVA_FRAME.match(line) or line.startswith(("JVM stacktrace", "== SQL", TRACEBACK)):
            break
        if line.strip(" :"):
            kept.append(line.strip().removeprefix(": "))
    return " ".join(kept[:lines])


def _blame_of(text: str) -> Blame:
    return "values" if any(f"[{name}" in text for name in OF_VALUES) else "other"


OF_VALUES = (
    "ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "CANNOT_PARSE", "CAST_INVALID_INPUT", "CAST_OVERFLOW",
    "CONVERSION_INVALID_INPUT", "DATETIME_", "DIVIDE_BY_ZERO", "INVALID_ARRAY_INDEX", "NUMERIC_", "REMAINDER_BY_ZERO",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS", "USER_RAISED_EXCEPTION", "INVALID_PARAMETER_VALUE", "FAILED_EXECUTE_UDF",
)  # fmt: skip
"""Conditions of Spark's that come of the rows and of what the user's SQL does with them."""
