"""The table of what was proved: rows of tests that ran are new, those of others stay."""

from __future__ import annotations

from tests.proofs import BEGIN, END, HEAD, Proof, quotable, with_table

ROWS = "| a disk | full | all | `test_disk` |\n| a net | cut | all | `test_net` |\n"
PAGE = f"# Before\n{BEGIN}\n{HEAD}{ROWS}{END}\nafter\n"


def test_a_part_of_the_campaign_forgets_nothing_of_the_rest() -> None:
    """Who runs one test gets one new row."""
    page = with_table(PAGE, [Proof("test_net", "a net", "held", "every row once")])
    rows = "| a disk | full | all | `test_disk` |\n| a net | held | every row once | `test_net` |\n"
    assert page == f"# Before\n{BEGIN}\n{HEAD}{rows}{END}\nafter\n"


def test_a_message_is_quoted_without_what_changes_from_run_to_run() -> None:
    """Or the page would differ after every campaign."""
    message = "store postgresql://u@127.0.0.1:42671/test_ce0befff5055 |\n cannot be used: /tmp/a/b-1/marks.db"
    assert quotable(message) == "store postgresql://u@127.0.0.1:…/test_… ¦ cannot be used: …/marks.db"
