"""Names and tags of a project's jobs for the shell, which asks at every key: read as text, nothing checked or imported.

What Python gives is not asked: a shell that completes a word must not run a user's code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = "floodmark.yaml"
JOB_FILES = ("jobs/**/*.yaml", "jobs/**/*.yml")
OWN_NAME = re.compile(r"^name:\s*['\"]?(?P<name>[A-Za-z0-9_][A-Za-z0-9_.\-]*)", re.MULTILINE)
ONE_JOB = re.compile(r"^(?:source|sinks|transform):", re.MULTILINE)
JOB_ITEM = re.compile(r"^(?P<indent> *)- (?:\{\s*)?name:\s*['\"]?(?P<name>[A-Za-z0-9_][A-Za-z0-9_.\-]*)", re.MULTILINE)
TAGS = re.compile(r"\btags:\s*(?:\[(?P<several>[^\]\n]*)\]|(?P<one>[A-Za-z0-9_][A-Za-z0-9_.\-]*))")
INCLUDE = re.compile(r"^include:\s*\[?(?P<patterns>[^\]\n]+)", re.MULTILINE)


def job_words(start: Path) -> list[str]:
    """The names of the jobs, then `tag:NAME` for every tag, in the order of the files; none without a project."""
    root = next((each / FILE_NAME for each in (start, *start.parents) if (each / FILE_NAME).is_file()), None)
    if root is None:
        return []
    texts = dict(_texts(root))
    names = [name for file, text in texts.items() for name in _names(file, text, is_root=file == root)]
    tags = [tag for text in texts.values() for tag in _tags(text)]
    return list(dict.fromkeys([*names, *(f"tag:{tag}" for tag in tags)]))


def _texts(root: Path) -> Iterator[tuple[Path, str]]:
    text = root.read_text(encoding="utf-8", errors="replace")
    yield root, text
    named = INCLUDE.search(text)
    patterns = [each.strip(" '\"") for each in named["patterns"].split(",")] if named else JOB_FILES
    for file in sorted({file for pattern in patterns for file in root.parent.glob(pattern) if file != root}):
        yield file, file.read_text(encoding="utf-8", errors="replace")


def _names(file: Path, text: str, *, is_root: bool) -> Iterator[str]:
    """A file that is one job is named after itself; else the items of the outermost list that has names are jobs."""
    if not is_root and ONE_JOB.search(text):
        own = OWN_NAME.search(text)
        yield own["name"] if own else file.stem
        return
    found = list(JOB_ITEM.finditer(text))
    outermost = min((len(each["indent"]) for each in found), default=0)
    yield from (each["name"] for each in found if len(each["indent"]) == outermost)


def _tags(text: str) -> Iterator[str]:
    for found in TAGS.finditer(text):
        listed = found["one"] or found["several"]
        yield from filter(None, (tag.strip(" '\"") for tag in listed.split(",")))
