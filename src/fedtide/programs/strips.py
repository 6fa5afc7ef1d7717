"""Convolutions with large results, a few images of the batch at a time.

Fifty images of 64 channels and 28 x 28 pixels take 10 MB: the pooling behind a convolution finds nothing of them in a core's
caches, nor does the weights' gradient of what the backward pass of the pooling has written. Strips of the batch stay there.
Every image is computed as before; sums over the batch are taken strip by strip, which changes their rounding.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

_CACHE = 1 << 21
"""Bytes of a strip's result: a core's own second-level cache and its share of the next one hold them (measured)."""

_MOST = 16  # most strips; each is a call of every operation
_aten = torch.ops.aten
_CONVOLUTION, _GRADIENT = _aten.convolution.default, _aten.convolution_backward.default
_POOLING = _aten.max_pool2d_with_indices.default

_BEHIND: dict[Any, tuple[int, ...]] = {_POOLING: (0,), _aten.relu.default: (0,), operator.getitem: ()}
"""What may follow the convolution: operations on each image alone, and which of their arguments are batches."""

_BEFORE: dict[Any, tuple[int, ...]] = {
    _aten.max_pool2d_with_indices_backward.default: (0, 1, 7),
    _aten.threshold_backward.default: (0, 1),
}
"""What may precede the convolution's backward pass."""

_BATCHES = {_CONVOLUTION: (0,), _GRADIENT: (0, 1), **_BEHIND, **_BEFORE}


def use_strips(graph: Graph) -> None:
    """Compute large convolutions that are pooled strip by strip, in place, in a graph whose nodes carry example values."""
    graph.eliminate_dead_code()  # a gradient that nobody asks for has no value
    for node in list(graph.nodes):
        if node.target is _CONVOLUTION:
            value = node.meta["val"]
            count = min(-(-value.numel() * value.itemsize // _CACHE), len(value), _MOST)
            forward, backward = _forward(node), _backward(node)
            batches = [batch for part in (*forward, *backward) for batch in _batches(part)]
            if count > 1 and forward and all(len(batch.meta["val"]) == len(value) for batch in batches):
                _cut(graph, forward, backward, [len(value) * part // count for part in range(count + 1)])


def _forward(convolution: Node) -> list[Node]:
    """The convolution and what follows it, in order; nothing if it is not pooled."""
    region = [convolution]
    for node in region:
        region += [user for user in node.users if user.target in _BEHIND and user not in region]
    return sorted(region) if any(node.target is _POOLING for node in region) else []


def _backward(convolution: Node) -> list[Node]:
    """The convolution's backward pass and what precedes it for no other purpose, in order."""
    inputs, weight = convolution.args[:2]
    assert isinstance(inputs, Node)
    region: list[Node] = []
    for gradient in inputs.users:
        if gradient.target is _GRADIENT and gradient.args[1:3] == (inputs, weight):
            region += [gradient, *gradient.users]
            before = gradient.args[0]
            while isinstance(before, Node) and before.target in _BEFORE and before.users.keys() <= set(region):
                region.append(before)
                before = before.args[0]
    return sorted(region)


def _batches(node: Node) -> list[Node]:
    return [batch for place in _BATCHES[node.target] if isinstance(batch := node.args[place], Node)]


def _cut(graph: Graph, forward: list[Node], backward: list[Node], bounds: list[int]) -> None:
    """Replace both passes by copies for the images between each two ``bounds``."""
    inside = {*forward, *backward}
    strips: list[dict[Node, Node]] = [{} for _ in bounds[1:]]
    for nodes in filter(None, (forward, backward)):
        with graph.inserting_before(nodes[0] if nodes is forward else nodes[-1]):
            for strip, start, stop in zip(strips, bounds, bounds[1:], strict=False):
                _copy(graph, nodes, strip, start, stop)
            for node in nodes:
                if any(user not in inside for user in node.users):
                    whole = _whole(graph, node, [strip[node] for strip in strips])
                    whole.meta = dict(node.meta)
                    node.replace_all_uses_with(whole, lambda user: user not in inside)
    for node in sorted(inside, reverse=True):
        graph.erase_node(node)


def _copy(graph: Graph, nodes: list[Node], strip: dict[Node, Node], start: int, stop: int) -> None:
    """Append copies of some nodes for the images from ``start`` to ``stop``; ``strip`` maps nodes to what replaces them."""
    for node in nodes:
        for batch in _batches(node):
            if batch not in strip:
                strip[batch] = graph.call_function(_aten.slice.Tensor, (batch, 0, start, stop))
                strip[batch].meta = _part(batch, start, stop)
        strip[node] = graph.node_copy(node, lambda used: strip.get(used, used))
        if node.target is not _GRADIENT and not _is_sum(node):
            strip[node].meta = _part(node, start, stop)


def _part(node: Node, start: int, stop: int) -> dict[str, Any]:
    value = node.meta["val"]
    return {"val": value[start:stop] if isinstance(value, Tensor) else tuple(item[start:stop] for item in value)}


def _is_sum(node: Node) -> bool:
    """Whether a node is a gradient of a weight or a bias."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, Node) and source.target is _GRADIENT and node.args[1] in (1, 2)


def _whole(graph: Graph, node: Node, parts: list[Node]) -> Node:
    """The value of a node from those of the strips."""
    if not _is_sum(node):
        return graph.call_function(_aten.cat.default, (parts,))
    total = parts[0]
    for part in parts[1:]:
        total = graph.call_function(_aten.add.Tensor, (total, part))
    return total
