"""Tracebacks, of this process or as a Python worker's text: the exception, and the user's own line in it."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

TRACEBACK = "Traceback (most recent call last):"
LONGEST_REASON = 400
OURS = str(Path(__file__).parents[1])
INSTALLED = ("/site-packages/", "/dist-packages/", "/pyspark/", "pyspark.zip", "py4j-", "<frozen ")
COMPILED = (".pyx", ".pxi", ".so")
GOES_ON = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
ENDS = ("Caused by", "Driver stack", "SQLSTATE:")
"""What follows the message of an exception in a text of Spark's."""
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
JAVA_FRAME = re.compile(r"^\s+at [\w$.<>/]+\(|^\s*\.\.\. \d+ more$")


def raised_in_worker(text: str) -> str | None:
    """What a Python worker's traceback ends with, and the line of the user's file; None if there is no traceback."""
    blocks = text.split(TRACEBACK)[1:]
    last = next((block for block in blocks if not block.rstrip().endswith(GOES_ON)), None)
    frames, raised = _parsed(last.splitlines()) if last else ([], "")
    if not raised:
        return None
    own = [frame for frame in frames if is_users(frame["file"])]
    place = own[-1] if own else None
    where = f" ({place_text(place['file'], int(place['line']), place['name'])})" if place else ""
    return f"{cut_short(raised)}{where}"


def _parsed(lines: Sequence[str]) -> tuple[list[re.Match[str]], str]:
    """The frames of a traceback, and the exception with its whole message."""
    frames: list[re.Match[str]] = []
    raised: list[str] = []
    for line in lines:
        frame = FRAME.match(line)
        if frame and not raised:
            frames.append(frame)
        elif raised and (JAVA_FRAME.match(line) or not line.strip() or line.strip().startswith(ENDS)):
            break
        elif raised or (line.strip() and not line.startswith(" ")):
            raised.append(line.strip())
    return frames, " ".join(raised)


def line_in_text(text: str) -> str:
    """The last line of the user's own code that a text names, in brackets; empty if it names none."""
    own = [frame for frame in map(FRAME.match, text.splitlines()) if frame and is_users(frame["file"])]
    place = own[-1] if own else None
    return f" ({place_text(place['file'], int(place['line']), place['name'])})" if place else ""


def place_in_code(traceback: TracebackType | None) -> str:
    """The user's own line that an error passed through last; empty if none of its lines is theirs."""
    own = [each for each in _frames(traceback) if is_users(each[0])]
    return place_text(*own[-1]) if own else ""


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield code.co_filename, traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next


def is_raised_by(error: BaseException, *packages: str) -> bool:
    """Whether code of one of these packages raised it."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    module = innermost.tb_frame.f_globals.get("__name__", "") if innermost else ""
    return str(module).split(".", maxsplit=1)[0] in packages


def modules_in(error: BaseException) -> list[str]:
    """The user's modules that were being imported when it was raised."""
    names, around = [], error.__traceback__
    while around is not None:
        frame, around = around.tb_frame, around.tb_next
        if frame.f_code.co_name == "<module>" and is_users(frame.f_code.co_filename):
            names.append(str(frame.f_globals.get("__name__", "")))
    return names


def is_users(file: str) -> bool:
    """Whether a file is neither ours, nor Python's, nor of an installed package."""
    is_python = not file.endswith(COMPILED) and not file.startswith((OURS, *_standard_library()))
    return is_python and not any(part in file for part in INSTALLED)


@cache
def _standard_library() -> tuple[str, ...]:
    return tuple(filter(None, (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))))


def place_text(file: str, line: int, name: str) -> str:
    """A line of a file, named from the working folder where it lies below it."""
    try:
        name_from_here = str(Path(file).relative_to(Path.cwd()))
    except (OSError, ValueError):  # it lies elsewhere, or the working folder is gone
        name_from_here = file
    return f"{name_from_here}, line {line}" + (f", in {name}" if name.isidentifier() else "")


def cut_short(text: str) -> str:
    """The text in one line of a length that can be read."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"
