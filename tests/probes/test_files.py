"""Listing files and counting their rows without Spark."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from time import process_time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm.parsing import seconds_in
from floodmark.locations import path_in_marks
from floodmark.logs import without_login
from floodmark.probes.files import SeenFile, _remote_files, current_files, list_files, rows_in


def put(path: Path, text: str = "x", mtime_ns: int = 1_000_000_001) -> str:
    """A file with a known size and time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return str(path)


def names(folder: Path, **options: object) -> list[str]:
    """What is listed, as paths below the folder."""
    listed = list_files(str(folder), **options)  # type: ignore[arg-type]
    return sorted(seen.path.removeprefix(f"{folder}/") for seen in listed)


def test_a_file_is_seen_with_its_size_and_its_time_to_the_nanosecond(tmp_path: Path) -> None:
    """A mark that rounds times would miss a file that was rewritten within the rounding."""
    path = put(tmp_path / "a.jsonl", "abc", 1_700_000_000_123_456_789)
    assert list_files(str(tmp_path)) == [SeenFile(path, 3, 1_700_000_000_123_456_789)]


def test_folders_below_are_listed_too(tmp_path: Path) -> None:
    """A folder named batch=7 is a folder like any other: our own files sink writes such."""
    put(tmp_path / "batch=7" / "part.jsonl")
    put(tmp_path / "a.jsonl")
    assert names(tmp_path) == ["a.jsonl", "batch=7/part.jsonl"]


def test_without_recursion_only_the_folder_itself_is_listed(tmp_path: Path) -> None:
    """The user's choice."""
    put(tmp_path / "deep" / "b.jsonl")
    put(tmp_path / "a.jsonl")
    assert names(tmp_path, recursive=False) == ["a.jsonl"]


def test_names_that_spark_ignores_are_ignored(tmp_path: Path) -> None:
    """A file that Spark leaves out must not be remembered as read."""
    put(tmp_path / "_SUCCESS")
    put(tmp_path / ".part.crc")
    put(tmp_path / "a.jsonl._COPYING_")
    put(tmp_path / "_tmp" / "b.jsonl")
    put(tmp_path / "_year=2026" / "c.jsonl")
    assert names(tmp_path) == ["_year=2026/c.jsonl"]


def test_a_glob_is_held_against_the_name(tmp_path: Path) -> None:
    """The usual case: one kind of file among others."""
    put(tmp_path / "a.csv")
    put(tmp_path / "deep" / "b.csv")
    put(tmp_path / "c.txt")
    assert names(tmp_path, glob="*.csv") == ["a.csv", "deep/b.csv"]


def test_a_glob_with_a_slash_is_held_against_the_path_below_the_folder(tmp_path: Path) -> None:
    """So that one folder can be chosen."""
    put(tmp_path / "2025" / "a.csv")
    put(tmp_path / "2026" / "b.csv")
    assert names(tmp_path, glob="2026/*.csv") == ["2026/b.csv"]


def test_a_path_may_be_one_file(tmp_path: Path) -> None:
    """Nobody should have to make a folder for it."""
    path = put(tmp_path / "a.jsonl", "abc")
    assert list_files(path) == [SeenFile(path, 3, 1_000_000_001)]


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    """Empty is an answer, and no error."""
    assert list_files(str(tmp_path)) == []


def test_a_missing_folder_is_unreadable_and_not_empty(tmp_path: Path) -> None:
    """A mount that is gone must never look like "nothing new"."""
    with pytest.raises(SourceUnreadable) as caught:
        list_files(str(tmp_path / "gone"))
    assert caught.value.source == str(tmp_path / "gone")


def test_something_below_that_cannot_be_followed_makes_the_folder_unreadable(tmp_path: Path) -> None:
    """Half a listing would move the mark past what it did not see. A link to itself fails for root, too."""
    put(tmp_path / "deep" / "a.jsonl")
    (tmp_path / "deep" / "loop").symlink_to("loop")
    with pytest.raises(SourceUnreadable) as caught:
        list_files(str(tmp_path))
    assert "loop" in caught.value.reason


def test_a_folder_below_without_rights_makes_the_folder_unreadable(tmp_path: Path) -> None:
    """The rights of a subfolder are lost more often than those of the folder."""
    put(tmp_path / "secret" / "a.jsonl")
    (tmp_path / "secret").chmod(0)
    program = (
        "import os, sys; from floodmark.probes.files import list_files\n"
        "os.chdir(sys.argv[1]); os.geteuid() or os.setuid(65534)\n"
        "try: list_files('.')\n"
        "except Exception as error: print(type(error).__name__, error.reason)"
    )
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("SourceUnreadable Permission denied"), done.stderr


def test_a_single_file_that_spark_would_ignore_is_refused(tmp_path: Path) -> None:
    """Spark reads such a file as empty, without a word."""
    with pytest.raises(SourceUnreadable) as caught:
        list_files(put(tmp_path / "_a.jsonl"))
    assert caught.value.hint == "rename the file"


def test_a_file_url_is_a_local_path(tmp_path: Path) -> None:
    """The same folder must have the same mark, however it is spelled."""
    assert path_in_marks(f"file://{tmp_path}/a%20b/") == f"{tmp_path}/a b"


def test_a_url_keeps_its_scheme_and_loses_its_last_slash() -> None:
    """Marks hold paths as the user wrote them."""
    assert path_in_marks("s3a://bucket/in/") == "s3a://bucket/in"


def test_a_login_is_never_shown() -> None:
    """Secrets never reach a message."""
    assert without_login("s3://key:secret@bucket/in") == "s3://bucket/in"


def test_a_remote_folder_is_listed_with_pyarrow(tmp_path: Path) -> None:
    """The same rules behind a URL: hidden names and folders are left out."""
    put(tmp_path / "b c" / "a%20b.jsonl", "abc", 5_000_000_000)
    put(tmp_path / "_tmp" / "x.jsonl")
    listed = list(_remote_files(f"file://{tmp_path}", recursive=True))
    assert listed == [SeenFile(f"file://{tmp_path}/b c/a%20b.jsonl", 3, 5_000_000_000)]


def test_a_missing_remote_folder_is_unreadable(tmp_path: Path) -> None:
    """The same as on a local disk."""
    with pytest.raises(SourceUnreadable):
        list(_remote_files(f"file://{tmp_path}/gone", recursive=True))


def test_a_scheme_that_nobody_knows_is_unreadable() -> None:
    """With the scheme's own complaint, not a stack of pyarrow's."""
    with pytest.raises(SourceUnreadable) as caught:
        list_files("nowhere://bucket/in")
    assert "nowhere" in caught.value.reason


def test_current_leaves_out_what_is_gone(tmp_path: Path) -> None:
    """A read checks the files of its span with this."""
    path = put(tmp_path / "a.jsonl", "abc")
    assert current_files([path, f"{tmp_path}/gone"]) == {path: SeenFile(path, 3, 1_000_000_001)}


def test_current_works_behind_a_url(tmp_path: Path) -> None:
    """Paths with blanks and percent signs are found as they are."""
    path = "file://" + put(tmp_path / "a b%20.jsonl", "abc")
    assert current_files([path, f"file://{tmp_path}/gone"]) == {path: SeenFile(path, 3, 1_000_000_001)}


def test_lines_are_counted_also_without_a_last_line_break(tmp_path: Path) -> None:
    """The last record of a file often has none."""
    assert rows_in(put(tmp_path / "a.jsonl", '{"id":1}\n{"id":2}'), "jsonl") == 2


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    """Not one row without text."""
    assert rows_in(put(tmp_path / "a.jsonl", ""), "jsonl") == 0


def test_the_header_of_a_csv_is_no_row(tmp_path: Path) -> None:
    """Unless there is none."""
    path = put(tmp_path / "a.csv", "id\n1\n2\n")
    assert (rows_in(path, "csv"), rows_in(path, "csv", header=False)) == (2, 3)


def test_compressed_files_are_counted(tmp_path: Path) -> None:
    """Spark reads them, so we count them."""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}\n{}\n"))
    (tmp_path / "a.jsonl.bz2").write_bytes(bz2.compress(b"{}\n"))
    assert rows_in(f"{tmp_path}/a.jsonl.gz", "jsonl") == 2
    assert rows_in(f"{tmp_path}/a.jsonl.bz2", "jsonl") == 1


def test_the_rows_of_a_parquet_file_are_in_its_footer(tmp_path: Path) -> None:
    """No row is read for it."""
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    assert rows_in(f"{tmp_path}/a.parquet", "parquet") == 3


def test_a_json_file_has_as_many_rows_as_its_list(tmp_path: Path) -> None:
    """An object is one row, and so is a value that cannot be parsed: it will be one dead letter."""
    assert rows_in(put(tmp_path / "list.json", '[{"id":1},{"id":2}]'), "json") == 2
    assert rows_in(put(tmp_path / "object.json", '{"id":1}'), "json") == 1
    assert rows_in(put(tmp_path / "bad.json", "[{"), "json") == 1


def test_a_file_that_cannot_be_counted_is_named(tmp_path: Path) -> None:
    """Among a thousand files, the name is the whole message."""
    with pytest.raises(SourceUnreadable) as caught:
        rows_in(put(tmp_path / "bad.parquet", "no parquet"), "parquet")
    assert caught.value.source == f"{tmp_path}/bad.parquet"


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5.0), ("10m", 600.0), ("1h", 3600.0), ("7d", 604800.0), (1.5, 1.5)]
)
def test_durations_are_read_as_people_write_them(text: str | float, seconds: float) -> None:
    """A bare number is seconds."""
    assert seconds_in(text, field="settle") == seconds


@pytest.mark.parametrize("text", ["", "5 parsecs", "-5s", "s", "nan"])
def test_a_duration_that_is_none_is_refused_with_its_field(text: str) -> None:
    """The user wrote it into a field; that is where to look."""
    with pytest.raises(ConfigError, match="settle"):
        seconds_in(text, field="settle")


@pytest.mark.slow
def test_a_large_folder_is_listed_fast(tmp_path: Path) -> None:
    """A look runs every few seconds: 20,000 files cost no more than half a second of CPU, on a slow machine too."""
    deque(map(Path.touch, [tmp_path / f"{n}.jsonl" for n in range(20_000)]), maxlen=0)
    begun = process_time()
    assert len(list_files(str(tmp_path))) == 20_000
    assert process_time() - begun < 0.5
