"""A message of ours is found again in Spark's long error, by its kind."""

from __future__ import annotations

import pytest

from floodmark.errors import ElementFailed, ElementInvalid
from floodmark.spark.faults import ElementFault, element_error_in, fault_in, fault_text


def spark_error(text: str) -> RuntimeError:
    """What is left of an executor's error on the driver."""
    return RuntimeError(f"Job aborted due to stage failure: [USER_RAISED_EXCEPTION] {text} SQLSTATE: P0001\n\tat java…")


def test_a_message_is_found_between_its_marks() -> None:
    """Also one of several lines."""
    assert fault_in(spark_error(fault_text("sink", "a key is NULL\nin a row")), "sink") == "a key is NULL\nin a row"


def test_a_fault_of_another_kind_is_not_meant() -> None:
    """A source must not explain what a sink refused."""
    error = spark_error(fault_text("sink", "a key is NULL"))
    assert (fault_in(error, "value"), element_error_in(error)) == (None, None)


def test_an_error_of_somebody_else_has_no_message() -> None:
    """It stays what it was."""
    assert fault_in(RuntimeError("disk full"), "sink") is None


def test_an_element_that_cannot_be_read_is_the_same_error_on_the_driver() -> None:
    """With the stream, the field and its place."""
    fault = ElementFault.invalid(ElementInvalid("orders", field="id", reason="it is null", position=""), 3, 7)
    error = element_error_in(spark_error(str(fault)))
    assert isinstance(error, ElementInvalid)
    assert (error.stream, error.field, error.position) == ("orders", "id", "partition 3, offset 7")


@pytest.mark.parametrize(("length", "ends_so"), [(10, "'"), (500, "…")])
def test_an_element_that_a_function_failed_on_is_shown_or_how_it_begins(length: int, ends_so: str) -> None:
    """A long one would fill the log."""
    fault = ElementFault.failed("orders", "partition 0, offset 1", ValueError("no price"), "x" * length)
    error = element_error_in(spark_error(str(fault)))
    assert isinstance(error, ElementFailed)
    assert error.element.endswith(ends_so)
