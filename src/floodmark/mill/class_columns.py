"""Many elements of a class read at once, field by field: what happens per element happens in C."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from floodmark.mill.class_closures import FieldPlan

ReadAll: TypeAlias = "Callable[[Sequence[dict[str, Any]]], list[Any]]"


def columns_reader(cls: type, plans: Sequence[FieldPlan]) -> ReadAll | None:
    """A function from dicts to elements; None for a class that cannot be made from its fields in their order.

    It raises whatever comes for the first batch in which an element lacks a field or has a value that does not fit:
    read one by one, they tell which it was, or take their defaults.
    """
    names = [plan.name for plan in plans]
    if not names or not _takes_in_order(cls, names):
        return None

    def read_all(raws: Sequence[dict[str, Any]]) -> list[Any]:
        columns = [_column(plan, list(map(itemgetter(plan.name), raws))) for plan in plans]
        return list(map(cls, *columns))

    return read_all


def _column(plan: FieldPlan, values: list[Any]) -> list[Any]:
    """The values of one field; nearly always all of them are of its very type and need no reading."""
    if plan.plain is not None and set(map(type, values)) <= {plan.plain}:
        return values
    read = plan.read
    return [read(value) for value in values]


def _takes_in_order(cls: type, names: Sequence[str]) -> bool:
    """Not so with fields that are only taken by keyword, or arguments that are no fields in between."""
    try:
        parameters = list(inspect.signature(cls).parameters.values())[: len(names)]
    except (TypeError, ValueError):
        return False
    in_order = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return in_order == list(names)
