"""The join tree in the words of those who work with it: as feeds that are read, and as nodes of the horizon."""

from __future__ import annotations

from floodmark.mill.aliases import Stream, name_of
from floodmark.mill.brokers import MessageBroker
from floodmark.mill.declaration import Declaration
from floodmark.mill.feeds import Feed
from floodmark.mill.horizon import Branch, Node


def feeds_of(declared: Declaration, broker: MessageBroker) -> dict[str, Feed]:
    """Every node of the tree with its keys: first the one that orders it, then one for each edge that leaves it."""
    feeds = {}
    for stream in declared.tree.nodes:
        leaving = [declared.keys[edge][0] for edge in declared.tree.edges_from(stream)]
        own = [declared.keys[edge][1] for edge in declared.tree.edges if edge.right == stream]
        has_window = stream == declared.tree.root and not declared.tree.has_told_windows
        window = [declared.window_key] if has_window and declared.window_key is not None else []
        keys = (*(own or window or leaving[:1]), *leaving)
        feeds[name_of(stream)] = Feed(broker.inlet(stream), declared.codecs[stream], keys)
    return feeds


def node_of(declared: Declaration, stream: Stream) -> Node:
    """The tree in the words of the horizon."""
    tree = declared.tree
    own = [edge.right_expression for edge in tree.edges if edge.right == stream]
    leaving = tree.edges_from(stream)
    has_window = tree.window is not None and stream == tree.root and not declared.tree.has_told_windows
    window = [tree.window] if has_window else []
    first = next(iter([*own, *window, *(edge.left_expression for edge in leaving)]), None)
    branches = [
        Branch(
            node_of(declared, edge.right),
            is_inner=edge.how == "inner",
            shares_key=first is not None and first.fingerprint() == edge.left_expression.fingerprint(),
        )
        for edge in leaving
    ]
    return Node(name_of(stream), tuple(branches))
