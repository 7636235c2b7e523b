#!/usr/bin/env python3
"""The same questions to the marks of etl-entities and to those of its door: ends with 0 if the answers are the same.

scripts/etl_entities_answers.py      in an environment that has etl-entities 3.0.4 beside this tree

A mark of every kind is made of many values, right and wrong ones, and asked everything that a mark can be asked, with
every other value. To refuse is an answer too, whatever the error. What differs on purpose stands in
docs/differences.md and is not asked.
"""

from __future__ import annotations

import copy
import importlib
import json
import operator
import pickle
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from pathlib import PurePosixPath
from typing import Any

ORIGINAL, DOOR = "etl_entities.hwm", "floodmark.compat.etl_entities.hwm"
DAY, TIME = date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 678)  # noqa: DTZ001 (the original's are naive)
VALUES: Mapping[str, Sequence[object]] = {
    "ColumnIntHWM": [None, 5, -1, "7", " 7 ", "null", "x", 1.0, 1.5, Decimal(3), 10**30, b"5"],
    "ColumnDateHWM": [None, DAY, "2024-05-06", "null", "x", TIME, 5],
    "ColumnDateTimeHWM": [
        *(None, TIME, TIME.replace(tzinfo=timezone.utc), DAY, "2024-05-06", "null", "x", 5),
        *("2024-05-06T07:08:09.123456", "2024-05-06 07:08:09+03:00"),
    ],
    "KeyValueIntHWM": [{}, {0: 1}, {"0": "1"}, {0: 1, 1: 2}, {0: None}, {"a": 1}, [(0, 1)], '{"0": 5}', None, "x"],
    "FileListHWM": [[], ["a"], ["/d/a", "/d/b"], {"a"}, "/d/a", "a/b", PurePosixPath("/d/q"), "a\nb", [5], 5, None],
    "FileModifiedTimeHWM": [None, TIME, TIME.replace(tzinfo=timezone.utc), "2024-05-06T07:08:09", "x", 5],
}
FIELDS = {"name": "n", "description": "d", "expression": "e", "entity": "x"}
OWN_FIELDS = {"FileListHWM": {"directory": "/d"}, "FileModifiedTimeHWM": {"directory": "/d"}}
Answer = tuple[str, object]
QUESTIONS: Mapping[str, Callable[[Any], object]] = {
    "made": lambda mark: mark,
    "value": lambda mark: mark.value,
    "json": lambda mark: json.loads(mark.json())["value"],
    "dict": lambda mark: mark.dict()["value"],
    "is_set": lambda mark: mark.is_set(),
    "reset": lambda mark: mark.reset(),
    "deserialize": lambda mark: type(mark).deserialize(mark.serialize()),
    "copy": lambda mark: copy.deepcopy(mark.copy()),
    "pickle": lambda mark: pickle.loads(pickle.dumps(mark)),  # noqa: S301 (our own bytes)
    "hash": lambda mark: hash(mark) == hash(mark.copy()),
    "add": lambda mark: mark + 1,
    "subtract": lambda mark: mark - 1,
    "len": len,
}
QUESTIONS_WITH_VALUE: Mapping[str, Callable[[Any, Any], object]] = {
    "set_value": lambda mark, value: mark.set_value(value),
    "update": lambda mark, value: mark.update(value),
    "in": lambda mark, value: value in mark,
    "covers": lambda mark, value: mark.covers(value),
    "== value": operator.eq,
    "< value": operator.lt,
}
COMPARISONS = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def main() -> int:
    """Ask both, and say by kind and question whether all answers were the same."""
    warnings.simplefilter("ignore")  # of pydantic, about the original's own methods
    of_original, of_door = (answers(importlib.import_module(name)) for name in (ORIGINAL, DOOR))
    differing = [key for key in of_original if of_original[key] != of_door[key]]
    for kind, question in of_original:
        print(f"{'differs' if (kind, question) in differing else 'same   '}  {kind}: {question}")
    for key in differing:
        pairs = zip(of_original[key], of_door[key], strict=True)
        print(
            "         {}: {} by the original, {} here".format(key, *next(pair for pair in pairs if len(set(pair)) > 1))
        )
    return 1 if differing else 0


def answers(module: Any) -> dict[tuple[str, str], list[Answer]]:  # noqa: ANN401 (a module)
    """What the marks of a module say, by kind and question, in the order of the values."""
    given: defaultdict[tuple[str, str], list[Answer]] = defaultdict(list)
    for kind, values in VALUES.items():
        marks = [partial(mark_of, getattr(module, kind), value) for value in values]
        others = [(partial(copy.copy, value), mark) for value, mark in zip(values, marks, strict=True)]
        for name, ask in QUESTIONS.items():
            given[kind, name] += [answer(ask, mark) for mark in marks]
        for name, ask_with in QUESTIONS_WITH_VALUE.items():
            given[kind, name] += [answer(ask_with, mark, value) for mark in marks for value, _ in others]
        for name, compare in COMPARISONS.items():
            given[kind, name] += [answer(compare, mark, other) for mark in marks for _, other in others]
    return given


def mark_of(make: Callable[..., Any], value: object) -> Any:  # noqa: ANN401 (a mark of either)
    """A mark of that value, whatever its kind needs beside it."""
    return make(**{**FIELDS, **OWN_FIELDS.get(make.__name__, {}), "value": value})


def answer(ask: Callable[..., object], *makers: Callable[[], object]) -> Answer:
    """What is said about things that are made for this question alone, since some questions change them.

    It can be compared between the two modules: of a mark, all but the time when it was made.
    """
    try:
        given = ask(*(make() for make in makers))
    except Exception:  # noqa: BLE001 (whatever either of them raises)
        return "refused", None
    if hasattr(given, "serialize"):
        fields = {name: each for name, each in given.serialize().items() if name != "modified_time"}
        return type(given).__name__, json.dumps(fields, sort_keys=True)
    if isinstance(given, Mapping):
        return "map", str(sorted(dict(given).items(), key=str))
    if isinstance(given, (frozenset, list, set)):
        return "paths", str(sorted(map(str, given)))
    return type(given).__name__, str(given)


if __name__ == "__main__":
    sys.exit(main())
