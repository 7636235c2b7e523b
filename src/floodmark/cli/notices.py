"""What a workflow's file asks to be told, through the alert channels of the project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.health.alerts import Alert, Subscription, send
from floodmark.health.channels import Email

if TYPE_CHECKING:
    from floodmark.jobs.workflow.attempt import Ended
    from floodmark.jobs.workflow.document import Moment, Watched, Workflow
    from floodmark.jobs.workflow.running import Finished

ERROR_SHOWN = 300


@dataclass(frozen=True)
class Notices:
    """Every channel hears what the file asks for; a channel for mail writes to the file's addresses as well.

    A failure is told when it begins and when it ends, not again by every run that fails in the same tasks.
    """

    workflow: Workflow
    subscriptions: Sequence[Subscription]
    scrub: Callable[[str], str] = str

    def began(self) -> None:
        """A run has its lease and is about to begin."""
        self._tell(self.workflow, "on_start", _note("run_started", self._name, "it begins"))

    def ended(self, finished: Finished) -> None:
        """A run is over: tell of the workflow, and of each task that has wishes of its own."""
        self._tell_workflow(finished)
        for each in finished.ended:
            self._tell_task(each, was_failed=each.outcome.task in finished.failed_before)

    def unheard(self) -> list[str]:
        """What the file asks for and nobody would hear, as `validate` shows it."""
        is_unheard = self.workflow.notifies() and not self.subscriptions
        return ["notifications (the project file has no `alerts`: nobody would be told)"] if is_unheard else []

    @property
    def _name(self) -> str:
        return f"workflow {self.workflow.name}"

    def _tell_workflow(self, finished: Finished) -> None:
        failed = frozenset(each.outcome.task for each in finished.failed)
        if failed and failed != finished.failed_before:
            reasons = "; ".join(f"{each.outcome.task} {self._reason(each)}" for each in finished.failed)
            self._tell(self.workflow, "on_failure", _trouble(self._name, reasons))
        elif finished.failed_before and finished.exit_code == 0:
            self._tell(self.workflow, "on_failure", _over(_trouble(self._name, "")))
        if finished.exit_code == 0:
            said = f"{len(finished.ended)} tasks done in {finished.seconds:.1f} s"
            self._tell(self.workflow, "on_success", _note("run_succeeded", self._name, said))

    def _tell_task(self, ended: Ended, *, was_failed: bool) -> None:
        task, outcome = self.workflow.task(ended.outcome.task), ended.outcome
        name = f"task {self.workflow.name}.{outcome.task}"
        if outcome.state in ("FAILED", "TIMEDOUT") and not was_failed:
            self._tell(task, "on_failure", _trouble(name, self._reason(ended)))
        elif outcome.state == "SUCCESS":
            if was_failed:
                self._tell(task, "on_failure", _over(_trouble(name, "")))
            said = f"done in {outcome.seconds:.1f} s"
            self._tell(task, "on_success", _note("run_succeeded", name, said))

    def _tell(self, who: Watched, moment: Moment, alert: Alert) -> None:
        if who.wants(moment):
            send([alert], [_addressed(each, who.addresses(moment)) for each in self.subscriptions])

    def _reason(self, ended: Ended) -> str:
        return f"{ended.outcome.state}: {self.scrub(ended.outcome.error or '')[:ERROR_SHOWN]}"


def _trouble(subject: str, message: str) -> Alert:
    now = datetime.now(timezone.utc)
    return Alert(f"failed_run:{subject}", "failed_run", subject, "critical", "open", message, now)


def _note(kind: str, subject: str, message: str) -> Alert:
    return Alert(f"{kind}:{subject}", kind, subject, "info", "note", message, datetime.now(timezone.utc))


def _over(trouble: Alert) -> Alert:
    return replace(trouble, status="resolved", message="it is well again")


def _addressed(subscription: Subscription, addresses: Sequence[str]) -> Subscription:
    """The channel, writing to these as well if it is one for mail."""
    channel = subscription.channel
    if not isinstance(channel, Email):
        return subscription
    return replace(subscription, channel=replace(channel, to=tuple(dict.fromkeys((*channel.to, *addresses)))))
