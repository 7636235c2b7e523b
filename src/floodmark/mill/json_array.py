"""A JSON array of objects, read piece by piece: a file of any size needs the memory of one piece."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from floodmark.errors import SourceUnreadable

PIECE_BYTES = 1 << 20
SPACE = " \t\r\n"
ANOTHER = re.compile(r"[ \t\r\n]*,[ \t\r\n]*\{")
CUT_SHORT = 16
"""A fault this near to the end of what was read may be a word that is not all there."""
decode_one = json.JSONDecoder().raw_decode


class ArrayReader:
    """The objects of an array, as text, one after the other; it can begin at any object whose place is known."""

    def __init__(self, path: Path, *, index: int = 0, byte: int = 0) -> None:
        self.path, self.index = path, index
        self._text, self._place, self._base = "", 0, byte
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def byte(self) -> int:
        """Where in the file the object begins that was given last."""
        return self._base + len(self._text[: self._place].encode())

    def objects(self) -> Iterator[str]:
        """The text of each object; while it is looked at, `index` is its number and `byte` its place.

        Raises SourceUnreadable, with that number, for what is no array of objects.
        """
        with self._opened() as file:
            sign = self._next(file) if self._base else self._begin(file)
            while sign == "{":
                end = self._end_of_object(file)
                yield self._text[self._place : end]
                self._place = end
                self.index += 1
                sign = self._after_object(file)
            if sign != "]":
                raise self._fault("it is no object")

    def _opened(self) -> BinaryIO:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise SourceUnreadable(f"json file {self.path}", reason=error.strerror or str(error)) from error
        file.seek(self._base)
        return file

    def _begin(self, file: BinaryIO) -> str:
        self._fill(file)
        self._place = 1 if self._text.startswith("\ufeff") else 0
        if self._next(file) != "[":
            raise SourceUnreadable(f"json file {self.path}", reason="it is no JSON array", hint=HINT)
        self._place += 1
        return self._next(file)

    def _after_object(self, file: BinaryIO) -> str:
        """The end of the array, or what follows the comma; nearly always, in one go, another object."""
        another = ANOTHER.match(self._text, self._place)
        if another:
            self._place = another.end() - 1
            return "{"
        sign = self._next(file)
        if sign != ",":
            return sign if sign == "]" else ""
        self._place += 1
        following = self._next(file)
        return following if following == "{" else ""

    def _next(self, file: BinaryIO) -> str:
        """Go to the next sign that is no space."""
        while True:
            while self._place < len(self._text) and self._text[self._place] in SPACE:
                self._place += 1
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._fill(file):
                raise self._fault("the array is not closed")

    def _end_of_object(self, file: BinaryIO) -> int:
        while True:
            try:
                return decode_one(self._text, self._place)[1]
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error) or not self._fill(file):
                    raise self._fault(f"it is no JSON: {error.msg}") from error

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos >= len(self._text) - CUT_SHORT

    def _fill(self, file: BinaryIO) -> bool:
        """Read on, more at once for an object that is longer than a piece; False at the end of the file."""
        piece = file.read(max(PIECE_BYTES, 2 * (len(self._text) - self._place)))
        try:
            text = self._decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            raise self._fault(f"it is not UTF-8: {error.reason}") from error
        self._base = self.byte
        self._text, self._place = self._text[self._place :] + text, 0
        return bool(piece)

    def _fault(self, reason: str) -> SourceUnreadable:
        return SourceUnreadable(f"json file {self.path}, element {self.index}", reason=reason, hint=HINT)


HINT = "the file holds one JSON array of objects"
