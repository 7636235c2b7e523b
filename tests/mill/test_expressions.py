"""Expressions: Python's own precedence and signs, on dicts, and words that tell one from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.mill import const_expression, function_call, get_field, get_fields
from floodmark.mill.expressions import Expression, Operation

T, FRAME, NESTED = get_field("t"), get_field("frame"), get_field("place")
ELEMENT = {"t": -7, "frame": 3, "place": {"x": 4, "deep": {"y": 5}}, "none": None, "name": "ab"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (T, -7),
        (T + 10, 3),
        (10 + T, 3),
        (T - 1, -8),
        (1 - T, 8),
        (T * 2, -14),
        (2 * T, -14),
        (T // 2, -4),
        (T // -2, 3),
        (22 // T, -4),
        (T % 3, 2),
        (T % -3, -1),
        (22 % T, -6),
        (-T, 7),
        (T + FRAME * 2, -1),
        ((T + FRAME) * 2, -8),
        (FRAME * 2 + get_fields("t"), -1),
        (NESTED["x"] + NESTED["deep"]["y"], 9),
        (T < FRAME, True),
        (T >= FRAME, False),
        (T == -7, True),
        (T != -7.0, False),
        (const_expression(5), 5),
        (function_call(lambda element: len(element["name"])) + 1, 3),
        (get_field("name") + "c", "abc"),
    ],
    ids=lambda value: value.describe() if isinstance(value, Expression) else "",
)
def test_an_expression_has_the_value_that_python_gives(expression: Expression, value: object) -> None:
    """Precedence, parentheses, reflected constants, and `//` and `%` that go down for negative numbers."""
    assert expression.evaluate(ELEMENT) == value


@pytest.mark.parametrize("expression", [get_field("none") + 1, 1 - get_field("none"), get_field("none")["x"]])
def test_an_expression_over_nothing_is_nothing(expression: Expression) -> None:
    """As a null in Spark: the key is then refused with its position, whichever of the two found it."""
    assert expression.evaluate(ELEMENT) is None


def test_an_idle_poll_is_for_functions_only() -> None:
    """A window by the clock is asked with None; a field has no value then."""
    assert function_call(lambda element: "idle" if element is None else "busy").evaluate(None) == "idle"
    with pytest.raises(TypeError, match="idle poll"):
        (T // 30).evaluate(None)


def test_an_expression_is_written_as_it_is_meant() -> None:
    """Parentheses show what is computed first."""
    assert ((T + 10) * FRAME // 2).describe() == "(((t + 10) * frame) // 2)"
    assert (NESTED["deep"]["y"] == "a").describe() == "(place['deep']['y'] == 'a')"


def test_an_expression_can_be_called_on_an_element() -> None:
    """On the dict that a stream holds, and on the dataclass that a function gets, nested ones included."""

    @dataclass
    class Place:
        x: int

    @dataclass
    class Step:
        t: int
        place: Place

    expression = T // 3 + NESTED["x"]
    assert expression({"t": 7, "place": {"x": 1}}) == 3
    assert expression(Step(7, Place(1))) == 3


def test_two_functions_have_two_fingerprints() -> None:
    """A changed function is a changed key, although its name is the same."""
    first, second = function_call(lambda element: element["a"]), function_call(lambda element: element["b"])
    assert first.describe() == second.describe()
    assert first.fingerprint() != second.fingerprint()
    assert (T + 1).fingerprint() == (get_field("t") + 1).fingerprint()


def test_an_expression_is_no_truth() -> None:
    """`a < t < b` would silently mean `t < b`."""
    with pytest.raises(TypeError, match="each element"):
        _ = 1 < T < 5  # what a user might write


def grown(smaller: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    signs = st.sampled_from(["+", "-", "*", "//", "%", "<", "=="])
    return st.builds(Operation, signs, smaller, smaller)


LEAVES = st.sampled_from([T, FRAME]) | st.integers(-9, 9).map(const_expression)


@given(st.recursive(LEAVES, grown, max_leaves=8), st.integers(), st.integers())
def test_any_expression_is_worth_what_its_words_are_worth(expression: Expression, t: int, frame: int) -> None:
    """`describe` is Python: what it says, evaluated by Python, is the value."""
    element = {"t": t, "frame": frame}
    assert worth(lambda: expression.evaluate(element)) == worth(lambda: eval(expression.describe(), dict(element)))  # noqa: S307


def worth(value: Callable[[], object]) -> object:
    """The value, or which error there is instead."""
    try:
        return value()
    except ZeroDivisionError as error:
        return type(error)
