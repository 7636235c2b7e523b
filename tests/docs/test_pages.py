"""How a page is cut into blocks: what is run, what is compared, what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks, first_cells, links, sections
from tests.docs.running import run_blocks

PAGE = """\
# Title

```python
print(1)
```

```text
1
```

<!-- not run: it needs a broker -->
```python
raise SystemExit
```

Words, with a [link](other.md#part) and [another](https://example.org).

```python
# shop.py
PRICE = 7
```

```text
this is not its output

```

## A `table`

| field | meaning |
|---|---|
| `a`, `b` | `c` |
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


def brief(block: Block) -> tuple[int, str | None, str | None, str | None]:
    return block.line, block.prints, block.not_run, block.file


def test_a_block_knows_its_line_its_output_its_excuse_and_its_file(page: Path) -> None:
    """The text right behind a block is its output; words in between part them."""
    first, second, third = blocks(page, "python")
    assert brief(first) == (4, "1\n", None, None)
    assert brief(second) == (13, None, "it needs a broker", None)
    assert brief(third)[::3] == (19, "shop.py")


def test_only_what_has_no_excuse_is_run(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a block that is a file is written."""
    monkeypatch.chdir(page.parent)
    answers = run_blocks(blocks(page, "python")[:2], lambda: capsys.readouterr().out)
    assert answers == [("1\n", "1\n")]
    run_blocks(blocks(page, "python")[2:], lambda: "")
    assert (page.parent / "shop.py").read_text() == "# shop.py\nPRICE = 7\n"


def test_a_test_on_a_page_that_fails_fails_ours(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what pytest said about it."""
    monkeypatch.chdir(page.parent)
    failing = Block(page, 1, "python", "# test_wrong.py\ndef test_it():\n    assert 1 == 2\n", None, None)
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        run_blocks([failing], lambda: "")


def test_names_are_taken_from_the_first_column_of_a_section(page: Path) -> None:
    """Of that section alone."""
    assert first_cells(sections(page)["A table"]) == ["a", "b"]
    assert links(page) == ["other.md"]
