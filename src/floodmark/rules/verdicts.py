"""What judging a batch gave: how often each rule was broken, and how many rows went which way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from floodmark.rules.contract import Action


@dataclass(frozen=True)
class Verdict:
    """One rule over one batch: of `checked` rows (1, for a rule on the batch itself) `failed` broke it."""

    name: str
    action: Action
    failed: int
    checked: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tally:
    """All rules over one batch: `judged` rows are those that were kept, quarantined or dropped."""

    judged: int = 0
    quarantined: int = 0
    dropped: int = 0
    verdicts: tuple[Verdict, ...] = ()

    def broken(self, action: Action) -> tuple[Verdict, ...]:
        """The rules with this action that did not hold."""
        return tuple(each for each in self.verdicts if each.action == action and each.failed)

    def serialize(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Tally:
        verdicts = tuple(Verdict(**{**each, "samples": tuple(each["samples"])}) for each in stored["verdicts"])
        return cls(**{**stored, "verdicts": verdicts})
