"""A JSON array of objects in a file of any size: where it can be cut, and the text of each object."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from floodmark.errors import SourceUnreadable

PIECE_BYTES = 1 << 20
SPACE = " \t\r\n"
ANOTHER = re.compile(r"[ \t\r\n]*,[ \t\r\n]*\{")
FLAT = re.compile(r'(\{[^{}"]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^{}"]*)*\})([ \t\r\n]*,[ \t\r\n]*)(?=\{)', re.DOTALL)
"""An object without another one inside, and what stands between it and the next."""
CUT_SHORT = 16
"""A fault this near to the end of what was read may be a word that is not all there."""
decode_one = json.JSONDecoder().raw_decode
PART_CHARACTERS = 2 << 20
"""After so many a part of a file ends, with the object that it is in."""
TRIES = 8
"""How many places are tried at which a part may end: a brace may also close an object within another."""
PART_OBJECTS = 50_000
"""As many has a part at most whose objects had to be gone through one by one."""
HINT = "the file holds one JSON array of objects"


@dataclass(frozen=True)
class Part:
    """Some elements that follow each other: the first one's number and place in the file, and how many."""

    index: int
    byte: int
    count: int


def count_objects(text: str) -> int:
    """How many objects stand there with commas between them; 0 if that is not all that stands there."""
    try:
        values = json.loads(f"[{text}]")
    except ValueError:
        return 0
    return len(values) if set(map(type, values)) == {dict} else 0


class ArrayReader:
    """The objects of an array, as text; it can begin at any object whose place is known.

    It reads piece by piece, so a file of any size needs the memory of one piece.
    """

    def __init__(self, path: Path, *, index: int = 0, byte: int = 0) -> None:
        self.path, self.index = path, index
        self._text, self._place, self._base = "", 0, byte
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._is_plain = True

    @property
    def byte(self) -> int:
        """Where in the file the object begins that was given last."""
        return self._base + len(self._text[: self._place].encode())

    def pieces(self) -> Iterator[list[str]]:
        """The text of every object, many at a time where no other is inside of them.

        Those are found by their signs, and not read. Raises SourceUnreadable for what is no array of objects, with the
        number of the element; what is wrong inside of an object, `parts` finds.
        """
        with self._opened() as file:
            sign = self._next(file) if self._base else self._begin(file)
            while sign == "{":
                if found := self._flat_objects():
                    yield found
                end = self._end_of_object(file)
                yield [self._text[self._place : end]]
                self._place = end
                self.index += 1
                sign = self._after_object(file)
            if sign != "]":
                raise self._fault("it is no object")

    def _flat_objects(self) -> list[str]:
        """The texts of all that follow each other here and are not the last of what was read; goes on behind them."""
        found = FLAT.findall(self._text, self._place)
        joined = "".join(chain.from_iterable(found))
        if not self._text.startswith(joined, self._place):  # one was left out, as another was inside of it
            return []
        self._place += len(joined)
        self.index += len(found)
        return [text for text, _ in found]

    def parts(self) -> Iterator[Part]:
        """Where the file can be cut, so that it is read side by side, after all of it was looked at.

        Raises SourceUnreadable, with the number of the element, for what is no array of objects.
        """
        with self._opened() as file:
            sign = self._begin(file)
            while sign == "{":
                index, byte = self.index, self.byte
                self._pass_part(file)
                yield Part(index, byte, self.index - index)
                sign = self._after_object(file)
            if sign != "]":
                raise self._fault("it is no object")

    def _pass_part(self, file: BinaryIO) -> None:
        """Go behind the objects of a part, all at once if they can be read together."""
        while len(self._text) - self._place < PART_CHARACTERS and self._fill(file):
            pass
        end = len(self._text)
        for _ in range(TRIES if self._is_plain else 0):
            end = self._text.rfind("}", self._place, end)
            count = count_objects(self._text[self._place : end + 1])
            if count:
                self._place, self.index = end + 1, self.index + count
                return
        self._is_plain = False  # to try at every part would cost more than it gives
        self._pass_each(file)

    def _pass_each(self, file: BinaryIO) -> None:
        """Behind a part, object by object; the last of it is left for whoever looks what follows."""
        first = self.index
        while True:
            self._place, self.index = self._end_of_object(file), self.index + 1
            another = ANOTHER.match(self._text, self._place)
            if not another or self.index - first >= PART_OBJECTS:
                return
            self._place = another.end() - 1

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
