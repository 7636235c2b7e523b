"""A stream as a picture: its steps as boxes, with arrows as its elements go, for notebooks and for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path

from floodmark.errors import ConfigError
from floodmark.streams.flow import Node, entries, in_flow_order
from floodmark.streams.operators import Port

CHARACTER_WIDTH, BOX_HEIGHT, MARGIN, GAP = 8, 32, 16, 48
"""Of the drawing, in pixels; the letters are of one width."""
KINDS = SVG, DOT = (".svg", ".dot")
Arrow = tuple[int, int]


class Picture(str):
    """The graph in the language of Graphviz; a notebook draws it."""

    __slots__ = ("arrows", "steps")
    steps: tuple[str, ...]
    arrows: tuple[Arrow, ...]
    """From step to step, by their places."""

    @classmethod
    def of(cls, node: Node) -> Picture:
        """The whole graph that a step belongs to; the inputs of a step that joins are no steps of their own."""
        nodes = [each for each in in_flow_order(entries(node)) if not isinstance(each.operator, Port)]
        places = {id(each): place for place, each in enumerate(nodes)}
        steps = tuple(str(each.operator) for each in nodes)
        arrows = tuple((places[id(each)], places[id(down)]) for each in nodes for down in _steps_behind(each))
        picture = cls(_dot(steps, arrows))
        picture.steps, picture.arrows = steps, arrows
        return picture

    def svg(self) -> str:
        """The drawing, from left to right: each step behind all that lead to it."""
        boxes = _boxes(self.steps, self.arrows)
        width = max(box.right for box in boxes) + MARGIN
        height = max(box.top for box in boxes) + BOX_HEIGHT + MARGIN
        lines = [_line(boxes[start], boxes[end]) for start, end in self.arrows]
        return "\n".join([_OPENING.format(width=width, height=height), *lines, *(box.svg() for box in boxes), "</svg>"])

    _repr_svg_ = svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file: `.svg` is the drawing, `.dot` the text. Raises ConfigError for any other kind."""
        kind = Path(path).suffix.lower()
        if kind not in KINDS:
            raise ConfigError(
                f"a picture is not written as '{kind or path}'.", hint="name the file .svg, or .dot for Graphviz"
            )
        text = self.svg() if kind == SVG else str(self)
        Path(path).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Box:
    """A step in the drawing."""

    label: str
    left: int
    top: int

    @property
    def right(self) -> int:
        return self.left + box_width(self.label)

    @property
    def middle(self) -> int:
        return self.top + BOX_HEIGHT // 2

    def svg(self) -> str:
        """Its outline and its label."""
        width, center = box_width(self.label), (self.left + self.right) // 2
        outline = f'<rect x="{self.left}" y="{self.top}" width="{width}" height="{BOX_HEIGHT}" rx="5"/>'
        return f'{outline}<text x="{center}" y="{self.middle}">{escape(self.label)}</text>'


def box_width(label: str) -> int:
    """So wide that the label has room."""
    return len(label) * CHARACTER_WIDTH + 2 * MARGIN


def _boxes(steps: Sequence[str], arrows: Sequence[Arrow]) -> list[Box]:
    """Steps stand in the order of the flow, so an arrow always leads to a later place."""
    columns = dict.fromkeys(range(len(steps)), 0)
    for start, end in sorted(arrows):
        columns[end] = max(columns[end], columns[start] + 1)
    lefts = _lefts(steps, columns)
    rows = dict.fromkeys(lefts, 0)
    boxes = []
    for place, label in enumerate(steps):
        column = columns[place]
        boxes.append(Box(label, lefts[column], MARGIN + rows[column] * (BOX_HEIGHT + MARGIN)))
        rows[column] += 1
    return boxes


def _lefts(steps: Sequence[str], columns: Mapping[int, int]) -> dict[int, int]:
    """Where each column begins: behind the widest box of the one before it."""
    lefts, left = {}, MARGIN
    for column in range(max(columns.values()) + 1):
        lefts[column] = left
        left += max(box_width(steps[place]) for place, own in columns.items() if own == column) + GAP
    return lefts


def _line(start: Box, end: Box) -> str:
    bend = (start.right + end.left) // 2
    path = f"M{start.right},{start.middle} C{bend},{start.middle} {bend},{end.middle} {end.left},{end.middle}"
    return f'<path d="{path}" marker-end="url(#arrow)"/>'


def _dot(steps: Sequence[str], arrows: Sequence[Arrow]) -> str:
    labels = [f'  {place} [label="{_quoted(step)}"]' for place, step in enumerate(steps)]
    lines = [f"  {start} -> {end}" for start, end in arrows]
    return "\n".join(["digraph stream {", "  rankdir=LR", *labels, *lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _steps_behind(node: Node) -> Iterator[Node]:
    for down in node.downstreams:
        yield from down.downstreams if isinstance(down.operator, Port) else (down,)


_OPENING = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<style>rect {{ fill: #eef4fb; stroke: #34679a; }} path {{ fill: none; stroke: #34679a; }}
text {{ font: 13px monospace; text-anchor: middle; dominant-baseline: central; }}</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0,0 L8,4 L0,8" /></marker></defs>"""
