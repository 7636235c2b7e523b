"""The fence: up to which value no transaction can add a row any more, and who is waited for.

A fence is the highest value that was seen, and the transactions that were open right after. It is passed once none of
those lives, however many younger ones came, since those take higher values (probes/postgres_fence.py says why). Only
one fence is waited for at a time, and the job record keeps it, so a busy database delays rows and never starves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.hwm import Json
from floodmark.probes.postgres_fence import OpenTransaction, PreparedTransaction, Writers


@dataclass(frozen=True)
class Pending:
    """A fence that somebody still stands before."""

    upto: Json
    holders: Writers

    def followed(self, now: Writers) -> Pending | None:
        """The same fence, with those that have gone left out; None if it is passed.

        A transaction that is gone from the open ones may have been prepared. It is then the prepared one of its id;
        where its id was not known, every prepared one that came since may be it. They are taken in once, when it goes.
        """
        gone = [one for one in self.holders.open if one not in now.open]
        ids, is_unknown = {one.xid for one in gone}, any(one.xid is None for one in gone)
        prepared = tuple(p for p in now.prepared if p in self.holders.prepared or is_unknown or p.xid in ids)
        living = Writers(tuple(one for one in now.open if one in self.holders.open), prepared)
        return Pending(self.upto, living) if living else None

    def serialize(self) -> dict[str, Json]:
        return {
            "upto": self.upto,
            "open": [[one.pid, one.began, one.xid] for one in self.holders.open],
            "prepared": [[one.gid, one.xid] for one in self.holders.prepared],
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Pending:
        holders = Writers(
            tuple(OpenTransaction(*one) for one in stored["open"]),
            tuple(PreparedTransaction(*one) for one in stored["prepared"]),
        )
        return cls(stored["upto"], holders)


@dataclass(frozen=True)
class Fence:
    """How far a table is final (`passed`, None: not at all yet), and the fence that is waited for."""

    passed: Json = None
    pending: Pending | None = None

    def after(self, highest: Json, now: Writers) -> Fence:
        """The fence once a look has seen the highest value and then, in this order, who may still write."""
        pending = self.pending.followed(now) if self.pending else None
        if pending is not None:
            return Fence(self.passed, pending)
        passed = self.pending.upto if self.pending else self.passed
        if not now or highest is None or highest == passed:
            return Fence(highest if highest is not None else passed)
        return Fence(passed, Pending(highest, now))

    def has_to_be_kept(self, before: Fence) -> bool:
        """Whether the record has to learn of it: of a new fence, a passed one, or a prepared transaction taken in.

        That a holder has gone is found out again at the next look, so an idle tick writes nothing.
        """
        if self.pending is None or before.pending is None or self.passed != before.passed:
            return self.serialize() != before.serialize()
        new = [one for one in self.pending.holders.prepared if one not in before.pending.holders.prepared]
        return bool(new) or self.pending.upto != before.pending.upto

    def serialize(self) -> dict[str, Json]:
        return {"passed": self.passed, "pending": self.pending.serialize() if self.pending else None}

    @classmethod
    def deserialize(cls, stored: Json) -> Fence:
        """As it stands in the record; nothing there is a fence that nobody took yet."""
        if not isinstance(stored, dict):
            return cls()
        pending = stored["pending"]
        return cls(stored["passed"], Pending.deserialize(pending) if isinstance(pending, dict) else None)
