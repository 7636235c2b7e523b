"""From a step's description to the step at work."""

from __future__ import annotations

from floodmark.errors import ConfigError
from floodmark.streams import nodes
from floodmark.streams.delivery import Delivering
from floodmark.streams.plain import plain_function
from floodmark.streams.together import call_one, call_together
from floodmark.streams.workers import (
    Clock,
    Flattening,
    Foreach,
    Partitioning,
    PartitioningTime,
    Plain,
    Sliding,
    Worker,
)


def worker_of(operator: nodes.Operator, step: str, clock: Clock) -> Worker:
    """The step at work, with nothing held; healing is the business of whoever runs the stream."""
    plain = plain_function(operator)
    if plain is not None:
        return Plain(step, plain)
    match operator:
        case nodes.Flatten():
            return Flattening(step)
        case nodes.ForeachMap(call):
            return Foreach(step, lambda items: [call_one(call, item) for item in items])
        case nodes.ForeachAsync(call, at_once):
            return Foreach(step, lambda items: call_together(call, items, at_once=at_once))
        case nodes.Partition(size):
            return Partitioning(step, size)
        case nodes.PartitionTime(seconds):
            return PartitioningTime(step, seconds, clock)
        case nodes.SlidingWindow(size, return_partial):
            return Sliding(step, size, return_partial=return_partial)
        case nodes.ToKafka():
            return Delivering(operator, step)
    raise ConfigError(f"no step '{operator}' in a stream.", hint="use the steps that Stream offers")
