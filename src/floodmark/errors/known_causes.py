"""Failures whose words hide what a person did, with plainer ones, and with the next step that works.

A pattern that is found in all that an error says; the first that is found counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from floodmark.errors.tracebacks import line_in_text

Blame = Literal["code", "values", "disk", "setup", "other"]
"""Whose fault it is: the user's Python; values that a query cannot work with; a full or closed disk; what is missing
around Spark (a driver, a login, memory, a server); or nobody that is known."""


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


def words_with(words: str) -> Callable[..., str]:
    """Words with what the pattern's groups found in them."""
    return lambda match, *_text: words.format(**{name: part or "" for name, part in match.groupdict().items()})


DRIVERS = {
    "com.mysql.cj.jdbc.Driver": "com.mysql:mysql-connector-j:9.3.0",
    "com.mysql.jdbc.Driver": "com.mysql:mysql-connector-j:9.3.0",
    "org.mariadb.jdbc.Driver": "org.mariadb.jdbc:mariadb-java-client:3.5.3",
    "oracle.jdbc.OracleDriver": "com.oracle.database.jdbc:ojdbc11:23.8.0.25.04",
    "oracle.jdbc.driver.OracleDriver": "com.oracle.database.jdbc:ojdbc11:23.8.0.25.04",
    "com.microsoft.sqlserver.jdbc.SQLServerDriver": "com.microsoft.sqlserver:mssql-jdbc:12.10.0.jre11",
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
    for part, package in FILE_SYSTEMS.items():
        if part in name.lower():
            return f"add `jars.packages: {package}:{hadoop_version()}` under `spark:`"
    return driver_hint(name)


FILE_SYSTEMS = {"s3a": "org.apache.hadoop:hadoop-aws", "azure": "org.apache.hadoop:hadoop-azure"}
"""What reads object stores, by a part of its class; each is of Hadoop's own version."""


def hadoop_version() -> str:
    """The Hadoop that the installed Spark has: its parts have to be of one version."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar") if spec and spec.origin else ()
    return next((jar.stem.removeprefix("hadoop-client-api-") for jar in jars), "VERSION")


def _folder(match: re.Match[str]) -> str:
    """The path, without what Spark makes below it while it writes."""
    return str(match["path"] or match["folder"] or match["file"]).split("/_temporary/")[0]


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
        r"Class(?:NotFoundException:| ) ?(?P<driver>[\w.]*(?:[Dd]river|FileSystem)\w*)(?: not found)?",
        words_with("class {driver} is not on Spark's class path"),
        _missing_class,
    ),
    KnownCause(
        r"No suitable driver",
        always("no driver for this jdbc: URL is on Spark's class path"),
        always("add `driver: its.class.Name` to the source, and " + driver_hint("")),
    ),
    KnownCause(
        r"NoAwsCredentialsException|NoAuthWithAWSException|Unable to load (?:AWS )?credentials|No AWS [Cc]redentials|"
        r"while loading credentials|failed to load IMDS|[Ee]rror getting credentials|credential provider was not",
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
        words_with("Spark has no data source '{format}'"),
        always("fix its name, or bring it: `jars.packages: group:name:version` under `spark:`"),
    ),
    KnownCause(
        r"UnknownHostException: (?P<host>[\w.-]+)",
        words_with("there is no host '{host}'"),
        always("fix the name in the URL; `getent hosts NAME` shows whether it is known here"),
    ),
    KnownCause(
        r"\[SESSION_OR_CONTEXT_NOT_EXISTS\]",
        lambda _match, text: f"a module needs a Spark session while it is imported{line_in_text(text)}",
        always("make what needs one inside a function, or give types as LongType() and not as text"),
        "code",
    ),
    KnownCause(
        r"Python worker exited unexpectedly \(crashed\)|Python worker (?:failed to connect|process) ?[^\n]*",
        always("a Python worker was killed or crashed, most often since it had no memory left"),
        always("let a function hold fewer rows at a time, or give `executor.pyspark.memory: 2g` under `spark:`"),
        "code",
    ),
    KnownCause(
        r"(?:AccessControlException|AccessDeniedException): (?P<path>/[^\s:]+)|Mkdirs failed to create (?:file:)?"
        r"(?P<folder>/\S+)|FileNotFoundException: (?P<file>/\S+) \(Permission denied\)",
        lambda match, _text: f"{_folder(match)} may not be written or read by this user",
        lambda match: f"`ls -ld {_folder(match)}` shows who may; run as that user, or choose another folder",
        "disk",
    ),
    KnownCause(
        r"\[FAILED_READ_FILE[^\]]*\][^\n]*reading file (?:file://)?(?P<path>\S+?)\.?\s[\s\S]*(?P<what>"
        r"Unexpected end of input stream|incorrect header check|invalid (?:block|stored|distance|literal)[^\n]*|"
        r"incorrect data check|CRC32? mismatch[^\n]*|not a gzip file|(?:corrupted|corrupt) [^\n]*)",
        words_with("{path} is damaged, or no file of the kind that its name says ({what})"),
        always("bring the file again, or move it out of the folder"),
        "disk",
    ),
    KnownCause(
        r"\[INVALID_IDENTIFIER\] The unquoted identifier (?P<name>[\s\S]*?) is invalid",
        words_with("the name {name} stands without backquotes"),
        words_with("write `{name}`; without them a name has only the letters a to z, digits and _"),
        "values",
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
        r"\[DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES\][\s\S]*?Invalid column names: (?P<names>[^\n]+?)\.?\n",
        words_with("a Delta table takes no column '{names}', with a blank or one of , ; = and brackets in its name"),
        words_with("rename it in the transform: select `{names}` as another_name, …"),
        "values",
    ),
    KnownCause(
        r"\[UNSUPPORTED_DATATYPE\] Unsupported data type \"(?P<kind>[^\"]+)\"",
        words_with("'{kind}' is no type of Spark's"),
        always("fix it in `schema:` or in the cast; `floodmark lint` names the line"),
        "values",
    ),
    KnownCause(
        r"\[UNRESOLVED_ROUTINE\][^`]*`(?P<name>[^`]+)`",
        words_with("there is no function '{name}'"),
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


SERVER_HINTS = (
    (
        r"password authentication|no password supplied|[Aa]uthentication fail|Access denied for|SASL|Login failed",
        "the login is refused: fix user and password (in `url`, `options`, or the variable that they come from)",
    ),
    (
        r"translate host name|[Nn]ame or service not known|resolve host|[Uu]nknown host|Failed to resolve|no host '",
        "there is no such host: fix its name; `getent hosts NAME` shows whether it is known here",
    ),
    (r"[Cc]onnection refused", "the host is there and nothing listens at this port: start the server, or fix the port"),
    (
        r"timeout expired|[Tt]imed out|[Nn]o route to host|unreachable|transport failure|ALL_BROKERS_DOWN",
        "nothing answers there: check host and port, that the server runs, and what a firewall lets through",
    ),
    (
        r'database "(?P<name>[^"]+)" does not exist|Unknown database \'(?P<other>[^\']+)\'',
        "fix the database's name at the end of `url`, or create it: `createdb {name}`",
    ),
    (
        r"relation .* does not exist|no such table|Table '[^']+' doesn't exist|there is no such table",
        "fix the name in `table:`, with its schema (public.orders); `floodmark check` looks again",
    ),
    (
        r"column .* does not exist|no such column|Unknown column",
        "fix the column's name in `cursor:`, `key:` or the query; `floodmark check` looks again",
    ),
    (
        r"permission denied for (?:table|relation|view|sequence) (?P<name>[\w.]+)",
        "let its owner run: GRANT SELECT ON {name} TO the role of this login (INSERT, UPDATE, DELETE for a sink)",
    ),
    (
        r"permission denied for schema (?P<name>\w+)",
        "let its owner run: GRANT USAGE, CREATE ON SCHEMA {name} TO the role of this login",
    ),
    (
        r"_AUTHORIZATION_FAILED|authorization failed",
        "let an administrator run `kafka-acls --add --allow-principal User:NAME --operation Read --topic TOPIC`",
    ),
    (r"UNKNOWN_TOPIC|Unknown topic", "fix the name in `topic:`, or make it: `kafka-topics --create --topic NAME`"),
    (
        r"database is locked|was locked for",
        "another process holds it: `fuser -v FILE` names it; wait for it or end it, and run again",
    ),
    (r"[Pp]ermission denied", "`ls -ld` shows who may read it: run as that user, or change its rights"),
    (r"No such file or directory", "fix `path:`, which is seen from the project file's folder; or make the folder"),
    (
        r"[Ss]sl|SSL|certificate",
        "compare `sslmode` and the certificates (`security.protocol` of Kafka) with the server's",
    ),
    (r"NoAwsCredentials|without credentials|loading credentials|load IMDS|getting credentials", LOGIN_TO_S3),
)
"""What servers say when they do not let somebody in, and what to do then: another thing for each."""


def server_hint(reason: str) -> str:
    """What to do about what a server, a client or a disk said; empty if that is not known."""
    for pattern, hint in SERVER_HINTS:
        if (match := re.search(pattern, reason)) is not None:
            names = match.groupdict()
            return hint.format(name=names.get("name") or names.get("other") or "it")
    return ""


def jdbc_hint(url: str) -> str:
    """The line that brings the driver of a jdbc: URL."""
    return driver_hint(URLS.get(url.split(":")[1] if url.startswith("jdbc:") else "", ""))
