"""Plots as SVG, drawn without a library: bars of ratios against their bounds, and lines of what grows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run import Result

BAR, LABELS, ROW, WIDTH = 360, 420, 22, 900
LEFT, TOP, ACROSS, DOWN = 70, 40, 520, 240
"""The frame of a plot of lines."""
WITHIN, OVER, PLAIN = "#2a7f62", "#c0392b", "#7f8c8d"
DASHES = ("", "6 3", "2 3", "8 3 2 3")


def ratios(results: Sequence[Result], title: str) -> str:
    """A bar for each ratio with a whisker over its rounds, and a line at the bound that it has to keep."""
    rows = [_bar(place, each) for place, each in enumerate(results)]
    return _svg(WIDTH, ROW * (len(results) + 2), [_text(8, 15, f"ratio to the reference, {title}", bold=True), *rows])


def _bar(place: int, result: Result) -> str:
    """The bound stands at two thirds of the width, so that bars of all cases can be compared by their share of it."""
    y, bound = ROW * (place + 1) + 8, LABELS + BAR * 2 / 3

    def width(ratio: float) -> float:
        return min(ratio / result.at_most, 1.5) * BAR * 2 / 3 if result.at_most else 0.0

    rounds = [own / plain for own, plain in zip(result.ours, result.reference, strict=False) if plain]
    middle = y + (ROW - 8) / 2
    whisker = (
        _line((LABELS + width(min(rounds)), middle), (LABELS + width(max(rounds)), middle), "#111") if rounds else ""
    )
    colour = WITHIN if result.holds else OVER
    return (
        _text(8, y + 12, result.name[:64])
        + f'<rect x="{LABELS}" y="{y}" width="{width(result.ratio):.0f}" height="{ROW - 8}" fill="{colour}"/>'
        + whisker
        + _line((bound, y - 3), (bound, y + ROW - 5), "#333")
        + _text(LABELS + BAR + 8, y + 12, f"{result.ratio:.2f} of at most {result.at_most:.2f}")
    )


def curves(results: Sequence[Result], title: str) -> str:
    """For every series a line of our times and a grey one of the reference's, both axes logarithmic."""
    series = list(dict.fromkeys(each.series for each in results))
    frame = _Frame(results)
    lines = [
        part
        for place, name in enumerate(series)
        for part in _series([each for each in results if each.series == name], frame, place)
    ]
    legend = [_legend(name, place) for place, name in enumerate(series)]
    height = TOP + DOWN + 60
    return _svg(WIDTH, height, [_text(8, 15, f"seconds, {title}", bold=True), *frame.axes(), *lines, *legend])


class _Frame:
    """Where a size and a time lie on the plot."""

    def __init__(self, results: Sequence[Result]) -> None:
        times = [time for each in results for time in (*each.ours, *each.reference) if time > 0]
        self.sizes = sorted({each.at for each in results if each.at})
        self.low, self.high = min(times, default=0.1), max(times, default=1.0)

    def place(self, size: float, time: float) -> tuple[float, float]:
        across = _share(size, self.sizes[0], self.sizes[-1])
        return LEFT + across * ACROSS, TOP + DOWN * (1 - _share(time, self.low, self.high))

    def axes(self) -> Iterable[str]:
        yield f'<rect x="{LEFT}" y="{TOP}" width="{ACROSS}" height="{DOWN}" fill="none" stroke="#999"/>'
        for size in self.sizes:
            yield _text(self.place(size, self.low)[0] - 12, TOP + DOWN + 18, f"{size:,.0f}")
        for time in (self.low, math.sqrt(self.low * self.high), self.high):
            yield _text(8, self.place(self.sizes[0], time)[1] + 4, f"{time:.3g} s")


def _series(points: Sequence[Result], frame: _Frame, place: int) -> Iterable[str]:
    for colour in (PLAIN, WITHIN):
        rounds = [(each.at, each.ours if colour == WITHIN else each.reference) for each in points]
        known = [(size, statistics.median(times)) for size, times in rounds if size and times]
        places = [frame.place(size, time) for size, time in sorted(known)]
        drawn = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
        dash = f' stroke-dasharray="{DASHES[place % len(DASHES)]}"' if place % len(DASHES) else ""
        yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>' if places else ""
        yield from (f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{colour}"/>' for x, y in places)


def _legend(name: str, place: int) -> str:
    y = TOP + 14 + place * 20
    dash = f' stroke-dasharray="{DASHES[place % len(DASHES)]}"' if place % len(DASHES) else ""
    line = f'<line x1="{LEFT + ACROSS + 12}" x2="{LEFT + ACROSS + 44}" y1="{y - 4}" y2="{y - 4}" stroke="#111"{dash}/>'
    return line + _text(LEFT + ACROSS + 50, y, name)


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low) if high > low else 0.5


def _svg(width: float, height: float, parts: Iterable[str]) -> str:
    head = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {head}>', *parts, "</svg>", ""])


def _text(x: float, y: float, words: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{weight}>{escape(words)}</text>'


def _line(start: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.0f}" x2="{x2:.0f}" y1="{y1:.0f}" y2="{y2:.0f}" stroke="{colour}"/>'
