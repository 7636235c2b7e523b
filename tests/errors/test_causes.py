"""What is behind an error: texts as Spark, Hadoop, drivers and workers write them, and what is said of each."""

from __future__ import annotations

import pytest

from floodmark.errors import SinkUnreachable, SourceUnreadable, StoreUnreachable
from floodmark.errors.causes import Cause, cause_of
from floodmark.errors.known_causes import server_hint

STACK = """\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(QueryExecutionErrors.scala:843)
\t... 17 more"""
IN_A_WORKER = f"""An error occurred while calling o184.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: 58030
{STACK}
Caused by: org.apache.spark.api.python.PythonException: An exception was thrown: Traceback (most recent call last):
  File "/shop/jobs.py", line 8, in price
    return total(row) / 0
           ~~~~~~~~~~~^~~
  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 3, in divide
    raise ZeroDivisionError("division by zero")
ZeroDivisionError: division by zero
 SQLSTATE: 38000
{STACK}
"""
CHAINED = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/shop/jobs.py", line 3, in read
    return row["amount"]
KeyError: 'amount'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/shop/jobs.py", line 5, in price
    raise ValueError("a price needs an amount")
ValueError: a price needs an amount
"""
FULL = f"""An error occurred while calling o99.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
{STACK}
Caused by: java.io.IOException: No space left on device
{STACK}
"""
MKDIRS = f"""An error occurred while calling o364.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 8.0 failed 1 times, most recent \
failure: Lost task 1.0 in stage 8.0 (TID 17) (host executor driver): java.io.IOException: Mkdirs failed to create \
file:/lake/x/_temporary/0/a_17 (exists=false, cwd=file:/)
{STACK}
"""
PARQUET = f"""An error occurred while calling o419.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file. SQLSTATE: KD001
{STACK}
Caused by: java.lang.RuntimeException: file:/in/a.parquet is not a Parquet file (length is too low: 5)
{STACK}
"""
COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `idd` cannot be \
resolved. Did you mean one of the following? [`id`, `name`]. SQLSTATE: 42703; line 1 pos 0;
'Project ['idd]
"""
NAMES = """[DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] Found invalid character(s) among ' ,;{}()\\n\\t=' in the column
names of your schema.
Invalid column names: a b.
Please use other characters and try again."""
TYPE = '[UNSUPPORTED_DATATYPE] Unsupported data type "LNOG". SQLSTATE: 0A000 (line 1, pos 3)'
DIVISION = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0"
DRIVER = ": java.lang.ClassNotFoundException: com.mysql.cj.jdbc.Driver"
S3 = "java.nio.file.AccessDeniedException: s3a://b/x: org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException"
NATIVE_S3 = "Kernel error -> Operation not supported\n ↳ an error occurred while loading credentials"
NO_S3 = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"


class JvmError(Exception):
    """Stands for an exception of PySpark's: its text is all that is looked at."""


JvmError.__module__ = "pyspark.errors"


@pytest.mark.parametrize(
    ("text", "reason", "blame"),
    [
        (IN_A_WORKER, "ZeroDivisionError: division by zero (/shop/jobs.py, line 8, in price)", "code"),
        (CHAINED, "ValueError: a price needs an amount (/shop/jobs.py, line 5, in price)", "code"),
        (FULL, "No space left on device", "disk"),
        (MKDIRS, "/lake/x may not be written or read by this user", "disk"),
        (
            "java.nio.file.AccessDeniedException: /lake/t\n\tat a.b(C)",
            "/lake/t may not be written or read by this user",
            "disk",
        ),
        (PARQUET, "file:/in/a.parquet is not a Parquet file (length is too low: 5)", "other"),
        (COLUMN, "there is no column 'idd' (the rows have id, name)", "values"),
        (NAMES, "a Delta table takes no column 'a b', with a blank or one of , ; = and brackets in its name", "values"),
        (TYPE, "'LNOG' is no type of Spark's", "values"),
        (DIVISION, "Division by zero.", "values"),
        (DRIVER, "class com.mysql.cj.jdbc.Driver is not on Spark's class path", "setup"),
        (
            ": java.sql.SQLException: No suitable driver",
            "no driver for this jdbc: URL is on Spark's class path",
            "setup",
        ),
        (S3, "S3 was asked without credentials", "setup"),
        (NATIVE_S3, "S3 was asked without credentials", "setup"),
        ("java.lang.OutOfMemoryError: Java heap space", "Spark ran out of memory (Java heap space)", "setup"),
        ("java.net.UnknownHostException: nohost", "there is no host 'nohost'", "setup"),
        ("[UNRESOLVED_ROUTINE] Cannot resolve routine `foo` on search path", "there is no function 'foo'", "values"),
        ("[TABLE_OR_VIEW_NOT_FOUND] The table or view `d` is not", "Spark's catalog has no table d", "values"),
    ],
)
def test_a_cause_is_one_line_that_a_person_can_act_on(text: str, reason: str, blame: str) -> None:
    """No class of Java's, no stack, no SQL state; a line of the user's file, where it was theirs."""
    cause = cause_of(JvmError(text))
    assert (cause.reason, cause.blame) == (reason, blame)


def test_a_missing_driver_comes_with_the_line_that_brings_it() -> None:
    """It can be pasted into the project file."""
    assert cause_of(JvmError(DRIVER)).hint.startswith("add `jars.packages: com.mysql:mysql-connector-j:")


def test_what_reads_s3_is_of_the_hadoop_that_spark_has() -> None:
    """Another version of it would fail in stranger ways."""
    assert "org.apache.hadoop:hadoop-aws:3." in cause_of(JvmError(NO_S3)).hint


def test_an_error_of_this_process_names_the_users_line() -> None:
    """A function that describes rows runs here, and not in a worker."""
    with pytest.raises(KeyError) as raised:
        {}["amount"]
    cause = cause_of(raised.value)
    assert cause == Cause(cause.reason, "", "other")
    assert cause.reason.startswith("KeyError: 'amount' (tests/errors/test_causes.py, line ")


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ('connection failed: FATAL:  password authentication failed for user "ada"', "password"),
        ('could not translate host name "nohost" to address', "getent hosts"),
        ("connection to server at 127.0.0.1, port 1 failed: Connection refused", "port"),
        ("connection timeout expired", "firewall"),
        ('FATAL:  database "shp" does not exist', "createdb shp"),
        ('relation "ordres" does not exist', "table:"),
        ('column "updatd_at" does not exist', "cursor:"),
        ("permission denied for table orders", "GRANT SELECT ON orders"),
        ("permission denied for schema sales", "GRANT USAGE, CREATE ON SCHEMA sales"),
        ("TOPIC_AUTHORIZATION_FAILED", "kafka-acls"),
        ("OperationalError: database is locked", "fuser"),
        ("[Errno 13] Permission denied", "ls -ld"),
    ],
)
def test_each_refusal_of_a_server_has_a_next_step_of_its_own(reason: str, word: str) -> None:
    """A wrong password, host, table, topic and right are five mistakes."""
    assert word in server_hint(reason)
    assert word in SourceUnreadable("it", reason=reason).hint
    assert word in SinkUnreachable("it", reason=reason).hint
    assert word in StoreUnreachable("it", reason=reason).hint
