"""What each channel has heard of: sent again where it did not arrive, and never an end without a beginning."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from floodmark.health.alerts import RECORD, Alert, HealthMemory, Subscription, Webhook, announce, recall, remember
from floodmark.health.report import Finding, Report, Status
from floodmark.stores.memory import MemoryMarkStore

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


@dataclass
class Pager:
    """A channel that keeps what it hears, and may be down."""

    name: str = "pager"
    is_down: bool = False
    heard: list[tuple[str, str]] = field(default_factory=list)
    attempts: int = 0

    def describe(self) -> str:
        return self.name

    def send(self, alert: Alert) -> None:
        self.attempts += 1
        if self.is_down:
            raise ConnectionError("no answer")
        self.heard.append((alert.severity, alert.status))


def report(status: Status, *subjects: str) -> Report:
    names = subjects or ("orders",)
    return Report(NOON, tuple(Finding("data_freshness", name, status, "STALE", {}, "stale") for name in names))


def test_an_opening_that_did_not_arrive_is_sent_with_the_next_examination() -> None:
    """And only then, and only to the channel that was down."""
    down, up = Pager("down", is_down=True), Pager("up")
    wishes = [Subscription(down), Subscription(up)]
    memory = announce(report("CRITICAL"), HealthMemory(), wishes)
    down.is_down = False
    memory = announce(report("CRITICAL"), memory, wishes)
    announce(report("CRITICAL"), memory, wishes)
    assert (down.heard, up.heard) == ([("critical", "open")], [("critical", "open")])


def test_an_end_goes_only_to_a_channel_that_heard_of_the_beginning() -> None:
    """What began and ended while a channel was down is no news to it."""
    down, up = Pager("down", is_down=True), Pager("up")
    wishes = [Subscription(down), Subscription(up)]
    memory = announce(report("CRITICAL"), HealthMemory(), wishes)
    down.is_down = False
    memory = announce(report("HEALTHY"), memory, wishes)
    assert (down.heard, up.heard) == ([], [("critical", "open"), ("critical", "resolved")])
    assert memory.deliveries == {"down": {}, "up": {}}


def test_an_end_that_did_not_arrive_is_sent_with_the_next_examination() -> None:
    """Until then the channel takes the trouble for open, so that it opens again is no news."""
    pager = Pager()
    memory = announce(report("WARNING"), HealthMemory(), [Subscription(pager)])
    pager.is_down = True
    memory = announce(report("HEALTHY"), memory, [Subscription(pager)])
    pager.is_down = False
    memory = announce(report("WARNING"), memory, [Subscription(pager)])
    announce(report("HEALTHY"), memory, [Subscription(pager)])
    assert pager.heard == [("warning", "open"), ("warning", "resolved")]


def test_a_channel_hears_of_an_end_by_the_worst_that_it_heard() -> None:
    """Critical, then a warning that it did not ask for, then well again."""
    pager = Pager()
    wishes = [Subscription(pager, (), "critical")]
    memory = announce(report("WARNING"), HealthMemory(), wishes)
    memory = announce(report("CRITICAL"), memory, wishes)
    memory = announce(report("WARNING"), memory, wishes)
    announce(report("HEALTHY"), memory, wishes)
    assert pager.heard == [("critical", "open"), ("critical", "resolved")]


def test_a_trouble_that_swings_is_sent_once_as_the_worst_and_once_at_its_end() -> None:
    """Nobody was told that it was less bad for a while, so that it is as bad again is no news."""
    pager, memory = Pager(), HealthMemory()
    for status in ("WARNING", "CRITICAL", "WARNING", "CRITICAL", "HEALTHY", "CRITICAL"):
        memory = announce(report(status), memory, [Subscription(pager)])
    assert pager.heard == [("warning", "open"), ("critical", "open"), ("critical", "resolved"), ("critical", "open")]


def test_a_channel_that_is_new_hears_of_what_is_open() -> None:
    """Whoever joins knows nothing yet."""
    old, new = Pager("old"), Pager("new")
    memory = announce(report("WARNING"), HealthMemory(), [Subscription(old)])
    announce(report("WARNING"), memory, [Subscription(old), Subscription(new)])
    assert (old.heard, new.heard) == ([("warning", "open")], [("warning", "open")])


def test_a_channel_that_is_listed_twice_hears_an_alert_once() -> None:
    """Two wishes of one channel are one listener."""
    pager = Pager()
    announce(report("CRITICAL"), HealthMemory(), [Subscription(pager), Subscription(pager, ("stale",), "critical")])
    assert pager.heard == [("critical", "open")]


def test_a_channel_that_is_gone_is_forgotten() -> None:
    """What is kept is bounded by the channels and alerts that there are."""
    memory = announce(report("WARNING"), HealthMemory(), [Subscription(Pager("old"))])
    assert announce(report("WARNING"), memory, []).deliveries == {}


def test_what_is_open_is_known_by_how_bad_it_is_now() -> None:
    """`floodmark alerts list` shows it; the worst is kept by channel."""
    wishes = [Subscription(Pager())]
    memory = announce(report("CRITICAL"), HealthMemory(), wishes)
    memory = announce(report("WARNING"), memory, wishes)
    assert (memory.alerts, memory.deliveries) == ({"stale:orders": "warning"}, {"pager": {"stale:orders": "critical"}})


def test_a_channel_that_fails_quickly_is_tried_with_every_alert() -> None:
    """It may be one alert that it does not take."""
    pager = Pager(is_down=True)
    announce(report("WARNING", "orders", "prices"), HealthMemory(), [Subscription(pager)])
    assert pager.attempts == 2


def test_a_channel_that_fails_slowly_is_left_for_the_next_examination() -> None:
    """A server that is down takes its time for every alert, and a loop waits for it."""
    pager, seconds = Pager(is_down=True), iter([0.0, 10.1])
    wishes, both = [Subscription(pager)], report("WARNING", "orders", "prices")
    memory = announce(both, HealthMemory(), wishes, lambda: next(seconds))
    assert pager.attempts == 1
    pager.is_down = False
    announce(both, memory, wishes)
    assert pager.heard == [("warning", "open"), ("warning", "open")]


def test_two_webhooks_are_two_channels_and_their_addresses_stay_secret() -> None:
    """Both are described by one word, and nothing that is stored shows an address."""
    wishes = [Subscription(Webhook("http://127.0.0.1:9/a")), Subscription(Webhook("http://127.0.0.1:9/b"))]
    names = list(announce(report("HEALTHY"), HealthMemory(), wishes).deliveries or ())
    assert (len(set(names)), "127.0.0.1" in str(names)) == (2, False)


def test_what_channels_heard_is_remembered() -> None:
    """Between two examinations of two processes."""
    store, memory = MemoryMarkStore(), HealthMemory({"orders": 3}, {"stale:orders": "warning"}, {"pager": {}})
    remember(store, memory)
    assert recall(store) == memory


def test_an_earlier_version_reads_what_this_one_remembers() -> None:
    """It knows the part `health` with two fields and no others."""
    store = MemoryMarkStore()
    remember(store, HealthMemory({"orders": 3}, {"stale:orders": "warning"}, {"pager": {}}))
    record = store.read(RECORD)
    assert record is not None
    assert record.extras.health == {"counts": {"orders": 3}, "alerts": {"stale:orders": "warning"}}


def test_a_memory_of_an_earlier_version_says_what_was_sent_to_those_who_wanted_it() -> None:
    """So nothing is sent twice, and whoever heard hears the end; UNKNOWN was never sent then."""
    everybody, critical = Pager("everybody"), Pager("critical")
    wishes = [Subscription(everybody), Subscription(critical, (), "critical")]
    old = HealthMemory({}, {"stale:orders": "warning", "stale:prices": "unknown"})
    memory = announce(report("WARNING"), old, wishes)
    announce(replace(report("HEALTHY"), findings=()), memory, wishes)
    assert (everybody.heard, critical.heard) == ([("warning", "resolved")], [])
