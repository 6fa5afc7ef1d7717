"""What a traced program computes from the shapes of its arguments alone: computed once, when it is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

_aten = torch.ops.aten
_FROM_SHAPES = {
    *(_aten.ones_like.default, _aten.zeros_like.default, _aten.full_like.default, _aten.scalar_tensor.default),
    *(_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default),
    *(_aten.zeros.default, _aten.ones.default, _aten.full.default, _aten.arange.default, _aten.arange.start),
}
"""Operations that read no number of a tensor, only its shape."""

_LARGEST = 1 << 14  # most numbers of a constant that is kept


def fold_constants(graph: GraphModule) -> None:
    """Replace what depends on shapes alone by its value, in place, in a traced graph whose nodes carry example values.

    Results are the same to the bit. Tensors that the graph writes into are left alone.
    """
    nodes = list(graph.graph.nodes)
    written = {place for node in nodes for place in _written(node)}
    known: dict[Node, Tensor] = {}
    for node in nodes:
        value = None if node in written else _known_value(node, known)
        if value is not None:
            known[node] = value
    for number, (node, value) in enumerate(known.items()):
        if all(user in known for user in node.users):
            continue  # needed for other constants only
        graph.register_buffer(name := f"constant_{number}", value.contiguous())
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(name)
        constant.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(constant, lambda user: user.op != "output")
        if node.users:  # a result belongs to the caller, who may write into it
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(graph.graph.call_function(_aten.clone.default, (constant,)))


def _written(node: Node) -> Iterator[Node]:
    """The tensors that a node writes into: an argument, and all that this one may share its memory with."""
    for argument in _sharing(node, written=True):
        yield argument
        pending = [argument]
        while pending:
            found = list(_sharing(pending.pop()))
            yield from found
            pending += found


def _sharing(node: Node, written: bool = False) -> Iterator[Node]:
    """Arguments whose memory a node writes into or else may share."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or (schema is None and written):
        return
    if schema is None:  # a function of Python, such as reshape
        yield from node.all_input_nodes
        return
    for described, argument in zip(schema.arguments, node.args, strict=False):
        shares = described.alias_info is not None and (described.alias_info.is_write or not written)
        if shares and isinstance(argument, Node):
            yield argument


def _known_value(node: Node, known: dict[Node, Tensor]) -> Tensor | None:
    """The value of a node that is the same at every call; ``None`` for others."""
    example, operation = node.meta.get("val"), cast(Callable[..., Tensor], node.target)
    if node.op != "call_function" or not isinstance(example, Tensor) or example.numel() > _LARGEST:
        return None
    if operation in _FROM_SHAPES:
        args, kwargs = map_arg((node.args, node.kwargs), _empty)
    elif torch.Tag.nondeterministic_seeded in getattr(operation, "tags", ()):
        return None
    elif node.all_input_nodes and all(argument in known for argument in node.all_input_nodes):
        args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
    else:
        return None
    return operation(*args, **kwargs)


def _empty(node: Node) -> Tensor:
    """A tensor of the traced shape, of which no number is read."""
    example = node.meta["val"]
    return torch.empty_strided(example.shape, example.stride(), dtype=example.dtype)
