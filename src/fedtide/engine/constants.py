"""What a traced program computes from the shapes of its arguments alone: computed once, when it is traced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

_aten = torch.ops.aten
_FROM_SHAPES = {
    _aten.ones_like.default,
    _aten.zeros_like.default,
    _aten.full_like.default,
    _aten.new_zeros.default,
    _aten.new_ones.default,
    _aten.new_full.default,
    _aten.arange.default,
    _aten.arange.start,
    _aten.full.default,
    _aten.zeros.default,
    _aten.ones.default,
}
"""Operations that read no number of a tensor, only its shape."""

_LARGEST = 1 << 12
"""Most numbers of a constant that is kept."""


def fold_constants(graph: GraphModule) -> None:
    """Replace what depends on shapes alone by its value, in place, in a traced graph whose nodes carry example values.

    Results are the same to the bit. Graphs that write into tensors are left alone.
    """
    nodes = list(graph.graph.nodes)
    if any(_writes(node) for node in nodes):
        return
    known: dict[Node, Tensor] = {}
    for node in nodes:
        value = _known_value(node, known)
        if value is not None:
            known[node] = value
    for node, value in known.items():
        if all(user in known for user in node.users):
            continue  # needed for other constants only
        name = f"constant_{len(dict(graph.named_buffers()))}"
        graph.register_buffer(name, value.contiguous())
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(name)
            # Results belong to the caller, who may write into them.
            owned = graph.graph.call_function(_aten.clone.default, (constant,))
        for user in list(node.users):
            user.replace_input_with(node, owned if user.op == "output" else constant)


def _writes(node: Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _known_value(node: Node, known: dict[Node, Tensor]) -> Tensor | None:
    """The value of a node that is the same at every call; ``None`` for others."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, Tensor) or value.numel() > _LARGEST:
        return None
    if node.target in _FROM_SHAPES:
        return node.target(*_examples(node.args), **_examples(node.kwargs))
    if node.all_input_nodes and all(argument in known for argument in node.all_input_nodes):
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        return node.target(*arguments[0], **arguments[1])
    return None


def _examples(arguments: Any) -> Any:
    """Tensors of the traced shapes in place of nodes; their numbers are not read."""
    def example(node: Node) -> Tensor:
        value = node.meta["val"]
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

    return torch.fx.node.map_arg(arguments, example)
