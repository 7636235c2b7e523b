"""The words of --select and --exclude."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from floodmark.errors import JobNotFound
from floodmark.project.selection import Selection


@dataclass(frozen=True)
class Named:
    """A job, as far as the words know it."""

    name: str
    tags: Sequence[str] = ()


JOBS = (Named("orders", ("nightly",)), Named("order_lines", ("nightly", "big")), Named("mart"), Named("report"))
NEEDS = {"orders": (), "order_lines": ("orders",), "mart": ("order_lines",), "report": ("mart",)}


def chosen(*words: str, exclude: Sequence[str] = ()) -> list[str]:
    return [job.name for job in Selection(words, exclude).of(JOBS, lambda: NEEDS)]


@pytest.mark.parametrize(
    ("words", "exclude", "names"),
    [
        ((), (), ["orders", "order_lines", "mart", "report"]),
        (("mart", "orders"), (), ["orders", "mart"]),
        (("order*",), (), ["orders", "order_lines"]),
        (("tag:nightly",), (), ["orders", "order_lines"]),
        (("tag:b*",), (), ["order_lines"]),
        (("+mart",), (), ["orders", "order_lines", "mart"]),
        (("order_lines+",), (), ["order_lines", "mart", "report"]),
        (("+order_lines+",), (), ["orders", "order_lines", "mart", "report"]),
        (("tag:big+",), (), ["order_lines", "mart", "report"]),
        ((), ("tag:nightly",), ["mart", "report"]),
        (("+report",), ("mart",), ["orders", "order_lines", "report"]),
    ],
)
def test_words_mean_jobs(words: Sequence[str], exclude: Sequence[str], names: list[str]) -> None:
    """Names, patterns and tags; a plus takes what lies before or after; what is excluded stays out."""
    assert chosen(*words, exclude=exclude) == names


@pytest.mark.parametrize(("word", "known"), [("ordrs", "orders"), ("x*", "orders"), ("tag:daily", "tag:nightly")])
def test_a_word_that_means_nothing_is_an_error(word: str, known: str) -> None:
    """A misspelt tag must not be a run of nothing."""
    with pytest.raises(JobNotFound) as caught:
        chosen(word)
    assert caught.value.known[0] == known


def test_what_jobs_need_is_asked_only_for_a_plus() -> None:
    """Reading all SQL of a project takes a moment that most commands need not pay."""
    assert Selection(["mart"]).of(JOBS, lambda: pytest.fail("nobody asked"))[0].name == "mart"
