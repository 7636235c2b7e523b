"""What becomes of a record that fails: the stream stops at it, tries it again, or puts it aside as a dead letter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from floodmark.errors import ConfigError, UnknownKind
from floodmark.probes.durations import seconds_in

Then = Literal["stop", "dead_letter"]
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class OnError:
    """How often a record runs, how long the pauses are (each twice the last), and what is done when all have failed."""

    attempts: int = 1
    backoff_seconds: float = 0.0
    then: Then = "stop"

    def pause_seconds(self, attempts: int) -> float:
        """How long to wait after so many failed attempts."""
        return min(self.backoff_seconds * math.pow(2, min(attempts - 1, 32)), LONGEST_PAUSE_SECONDS)


stop = OnError()
"""The others of the batch finish, the mark stops at the failed record, and the run ends with an error."""

dead_letter = OnError(then="dead_letter")
"""A failed record is put aside at once, and the mark goes on."""


def retry(times: int, backoff: str | float = 1.0, *, then: Then = "stop") -> OnError:
    """Try a failed record so many times again, after `backoff` (seconds, or text like '1s'), twice that, and so on."""
    if times < 1:
        raise ConfigError(f"retry({times}) tries nothing again.", hint="retry(3, backoff='1s'), or on_error='stop'")
    return on_error_of(OnError(times + 1, seconds_in(backoff, field="backoff"), then))


def on_error_of(given: str | OnError) -> OnError:
    """The policy, however it was written."""
    if isinstance(given, OnError):
        if given.then not in get_args(Then):
            raise UnknownKind("end of on_error", str(given.then), known=get_args(Then))
        return given
    words = {"stop": stop, "dead_letter": dead_letter}
    if given not in words:
        raise UnknownKind("on_error", str(given), known=[*words, "retry(n, backoff)"])
    return words[given]
