"""What lies behind an error of Spark, of a driver or of a user's code: what a person did, where, and what to try next.

Spark hands on an executor's error as text: a Python traceback within a Java stack within another one. All of it is
taken apart here and nowhere else; the whole text stays in the debug log.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from types import TracebackType

Blame = Literal["code", "values", "disk", "setup", "other"]
"""Whose fault it is: the user's Python; values that a query cannot work with; a full or closed disk; what is missing
around Spark (a driver, a login, memory, a server); or nobody that is known."""
TRACEBACK = "Traceback (most recent call last):"
LONGEST_REASON = 400
OURS = str(Path(__file__).parents[1])
INSTALLED = ("/site-packages/", "/dist-packages/", "/pyspark/", "pyspark.zip", "py4j-", "<frozen ")
STANDARD = tuple(filter(None, (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))))
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
JAVA_FRAME = re.compile(r"^\s+at [\w$.<>/]+\(|^\s*\.\.\. \d+ more$")
CAUSED_BY = re.compile(r"^\s*Caused by: (.*)$", re.MULTILINE)
JAVA_CLASS = re.compile(r"^(?:[a-z][\w$]*\.){2,}([A-Z][\w$]*)(?::\s*|$)")
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
            return Cause(known.reason(match, text), known.hint(match), known.blame)
    raised = raised_in_worker(text)
    if raised is not None:
        return Cause(raised, "fix that line and run again", "code")
    place = place_in_code(error.__traceback__)
    reason = f"{described(text, error)}{f' ({place})' if place else ''}"
    return Cause(reason, "", _blame_of(text) if not place else "code")


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
    return "\n".join(dict.fromkeys(part for part in parts if part.strip()))


def described(text: str, error: BaseException) -> str:
    """The words of the error itself: of the deepest cause where Java nests several, without codes and stacks."""
    own = _first_lines(str(error))
    causes = [said for said in CAUSED_BY.findall(text) if not _says_nothing(said)]
    said = _plain(causes[-1]) if causes and _is_shell(own) else _plain(own)
    name = "" if _is_of_spark(error) else type(error).__name__
    whole = f"{name}: {said}" if name and not said.startswith(name) else said
    return _cut(whole.strip(": ")) or type(error).__name__


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
    """Without the class in front, Spark's condition and SQL state, and the plan that follows them."""
    said = STATE.sub("", JAVA_CLASS.sub("", said.strip()))
    return CONDITION.sub("", said).strip()


def _first_lines(text: str, lines: int = 2) -> str:
    kept: list[str] = []
    for line in text.strip().splitlines():
        if JAVA_FRAME.match(line) or line.startswith(("JVM stacktrace", "== SQL", TRACEBACK)):
            break
        if line.strip(" :"):
            kept.append(line.strip().removeprefix(": "))
    return " ".join(kept[:lines])


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def _blame_of(text: str) -> Blame:
    return "values" if any(f"[{name}" in text for name in OF_VALUES) else "other"


OF_VALUES = (
    "ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "CANNOT_PARSE", "CAST_INVALID_INPUT", "CAST_OVERFLOW",
    "CONVERSION_INVALID_INPUT", "DATETIME_", "DIVIDE_BY_ZERO", "INVALID_ARRAY_INDEX", "NUMERIC_", "REMAINDER_BY_ZERO",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS", "USER_RAISED_EXCEPTION", "INVALID_PARAMETER_VALUE", "FAILED_EXECUTE_UDF",
)  # fmt: skip
"""Conditions of Spark's that come of the rows and of what the user's SQL does with them."""


def raised_in_worker(text: str) -> str | None:
    """What a Python worker's traceback ends with, and the line of the user's file; None if there is no traceback."""
    blocks = text.split(TRACEBACK)[1:]
    if not blocks:
        return None
    frames, raised = _parsed(blocks[0].splitlines())
    if not raised:
        return None
    own = [frame for frame in frames if is_users(frame["file"])]
    place = own[-1] if own else None
    where = f" ({place_text(place['file'], int(place['line']), place['name'])})" if place else ""
    return f"{_cut(raised)}{where}"


def _parsed(lines: Sequence[str]) -> tuple[list[re.Match[str]], str]:
    """The frames of a traceback, and the exception with its whole message."""
    frames: list[re.Match[str]] = []
    raised: list[str] = []
    for line in lines:
        frame = FRAME.match(line)
        if frame and not raised:
            frames.append(frame)
        elif raised and (JAVA_FRAME.match(line) or not line.strip() or line.startswith(("Caused by", "Driver stack"))):
            break
        elif raised or (line.strip() and not line.startswith(" ")):
            raised.append(line.strip())
    return frames, " ".join(raised)


def place_in_code(traceback: TracebackType | None) -> str:
    """The user's own line that an error passed through last; empty if none of its lines is theirs."""
    own = [each for each in _frames(traceback) if is_users(each[0])]
    return place_text(*own[-1]) if own else ""


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield code.co_filename, traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next


def is_users(file: str) -> bool:
    """Whether a file is neither ours, nor Python's, nor of an installed package."""
    return not file.startswith((OURS, *STANDARD)) and not any(part in file for part in INSTALLED)


def place_text(file: str, line: int, name: str) -> str:
    """A line of a file, named from the working folder where it lies below it."""
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}, line {line}" + (f", in {name}" if name.isidentifier() else "")


@dataclass(frozen=True)
class KnownCause:
    """Something that fails in Spark's words and has plainer ones; both may use what the pattern finds."""

    pattern: str
    reason: Callable[[re.Match[str], str], str]
    hint: Callable[[re.Match[str]], str]
    blame: Blame = "setup"


def always(words: str) -> Callable[..., str]:
    """The same words, whatever was found."""
    return lambda *_found: words


def found(words: str) -> Callable[..., str]:
    """Words with what the pattern's groups found in them."""
    return lambda match, *_text: words.format(**{name: part or "" for name, part in match.groupdict().items()})


DRIVERS = {
    "com.mysql.cj.jdbc.Driver": "com.mysql:mysql-connector-j:9.1.0",
    "com.mysql.jdbc.Driver": "com.mysql:mysql-connector-j:9.1.0",
    "org.mariadb.jdbc.Driver": "org.mariadb.jdbc:mariadb-java-client:3.5.3",
    "oracle.jdbc.OracleDriver": "com.oracle.database.jdbc:ojdbc11:23.6.0.24.10",
    "oracle.jdbc.driver.OracleDriver": "com.oracle.database.jdbc:ojdbc11:23.6.0.24.10",
    "com.microsoft.sqlserver.jdbc.SQLServerDriver": "com.microsoft.sqlserver:mssql-jdbc:12.8.1.jre11",
    "com.ibm.db2.jcc.DB2Driver": "com.ibm.db2:jcc:12.1.0.0",
    "org.h2.Driver": "com.h2database:h2:2.3.232",
    "net.snowflake.client.jdbc.SnowflakeDriver": "net.snowflake:snowflake-jdbc:3.20.0",
    "com.clickhouse.jdbc.ClickHouseDriver": "com.clickhouse:clickhouse-jdbc:0.7.1",
    "org.duckdb.DuckDBDriver": "org.duckdb:duckdb_jdbc:1.1.3",
}
"""Drivers that people use, with the package that has each."""
URLS = {
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver",
    "snowflake": "net.snowflake.client.jdbc.SnowflakeDriver",
    "clickhouse": "com.clickhouse.jdbc.ClickHouseDriver",
    "duckdb": "org.duckdb.DuckDBDriver",
}


def driver_hint(driver: str) -> str:
    """The line that brings a JDBC driver."""
    package = DRIVERS.get(driver)
    where = "under `spark:` in the project file (spark_session settings in Python)"
    if package is None:
        return f"add `jars: /path/to/driver.jar`, or `jars.packages: group:name:version`, {where}"
    return f"add `jars.packages: {package}` {where}"


def _missing_class(match: re.Match[str]) -> str:
    name = match["driver"]
    if "s3a" in name.lower():
        return f"add `jars.packages: org.apache.hadoop:hadoop-aws:{hadoop_version()}` under `spark:`"
    return driver_hint(name)


def hadoop_version() -> str:
    """The Hadoop that the installed Spark has: its parts have to be of one version."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar") if spec and spec.origin else ()
    return next((jar.stem.removeprefix("hadoop-client-api-") for jar in jars), "VERSION")


LOGIN_TO_S3 = (
    "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), or set `hadoop.fs.s3a.access.key` and "
    "`hadoop.fs.s3a.secret.key` under `spark:`; of a store that is not Amazon's, `hadoop.fs.s3a.endpoint` too"
)
KNOWN = (
    KnownCause(
        r"(?:(?P<file>/[^\s:()]+)[^\n]{0,80})?(?P<what>No space left on device|Disk quota exceeded)",
        lambda match, _text: f"{match['what']}{f' ({path})' if (path := match['file']) else ''}",
        always("`df -h` shows which disk is full: free space there, or move the folder; Spark's own is `local.dir`"),
        "disk",
    ),
    KnownCause(
        r"java\.lang\.OutOfMemoryError: (?P<what>[^\n]+)|Container killed by YARN for exceeding memory",
        lambda match, _text: f"Spark ran out of memory ({match['what'] or 'its container was killed'})",
        always("give it more: `driver.memory: 4g` under `spark:`; or read less at a time: `read: {max_rows: 1000000}`"),
    ),
    KnownCause(
        r"Class(?:NotFoundException:| ) ?(?P<driver>[\w.]*(?:[Dd]river|S3AFileSystem)\w*)(?: not found)?",
        found("class {driver} is not on Spark's class path"),
        _missing_class,
    ),
    KnownCause(
        r"No suitable driver",
        always("no driver for this jdbc: URL is on Spark's class path"),
        always("add `driver: its.class.Name` to the source, and " + driver_hint("")),
    ),
    KnownCause(
        r"NoAwsCredentialsException|NoAuthWithAWSException|Unable to load (?:AWS )?credentials|No AWS [Cc]redentials",
        always("S3 was asked without credentials"),
        always(LOGIN_TO_S3),
    ),
    KnownCause(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|(?:AccessDenied|AccessDeniedException)[^\n]*(?:s3|S3|403)",
        always("S3 refused the credentials, or they have no right to this bucket"),
        always("compare them with `aws sts get-caller-identity` and the bucket's policy"),
    ),
    KnownCause(
        r"Failed to find (?:the )?data source: `?(?P<format>[\w-]+)",
        found("Spark has no data source '{format}'"),
        always("fix its name, or bring it: `jars.packages: group:name:version` under `spark:`"),
    ),
    KnownCause(
        r"UnknownHostException: (?P<host>[\w.-]+)",
        found("there is no host '{host}'"),
        always("fix the name in the URL; `getent hosts NAME` shows whether it is known here"),
    ),
    KnownCause(
        r"Python worker exited unexpectedly \(crashed\)|Python worker (?:failed to connect|process) ?[^\n]*",
        always("a Python worker was killed or crashed, most often since it had no memory left"),
        always("let a function hold fewer rows at a time, or give `executor.pyspark.memory: 2g` under `spark:`"),
        "code",
    ),
    KnownCause(
        r"(?:AccessControlException|AccessDeniedException|FileNotFoundException): (?P<path>/[^\n]*?)"
        r"(?: \(Permission denied\)|: Permission denied|$)[^\n]*",
        found("{path} may not be written or read by this user"),
        found("`ls -ld {path}` shows who may; run as that user, or choose another folder"),
        "disk",
    ),
    KnownCause(
        r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`(?P<column>[^`]+(?:`\.`[^`]+)*)`[^\[\n]*(?:\[(?P<near>[^\]]*)\])?",
        lambda match, _text: (
            f"there is no column '{match['column'].replace('`', '')}'"
            + (f" (the rows have {match['near'].replace('`', '')})" if match["near"] else "")
        ),
        always("fix the name, or select the column in the transform"),
        "values",
    ),
    KnownCause(
        r"\[UNSUPPORTED_DATATYPE\] Unsupported data type \"(?P<kind>[^\"]+)\"",
        found("'{kind}' is no type of Spark's"),
        always("fix it in `schema:` or in the cast; `floodmark lint` names the line"),
        "values",
    ),
    KnownCause(
        r"\[UNRESOLVED_ROUTINE\][^`]*`(?P<name>[^`]+)`",
        found("there is no function '{name}'"),
        always("fix its name; a function of your own is registered with spark.udf.register before the run"),
        "values",
    ),
    KnownCause(
        r"\[TABLE_OR_VIEW_NOT_FOUND\][^`]*(?P<name>`[^`]+`(?:\.`[^`]+`)*)",
        lambda match, _text: f"Spark's catalog has no table {match['name'].replace('`', '')}",
        always("fix the name; the rows of the job are called `source`"),
        "values",
    ),
)
"""In this order: what the machine lacks may hide behind any traceback."""
