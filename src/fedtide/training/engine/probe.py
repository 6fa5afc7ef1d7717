"""What a network may not do, and which of its buffers are constant, looked for on a few samples before training.

A local step must be a pure function of parameters, statistics, a batch and a key, or results would depend on which worker
trained which client. BatchNorm's statistics, GroupNorm, LayerNorm, attention, keyed dropout and buffers that stay as they are
fit that. Refused are draws from other generators, writes into the inputs, buffers that training replaces, integers that it
writes, attributes that change, and what a trace does not repeat on other samples: Python that depends on values.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _NormBase

from fedtide.core.errors import SettingsError, shortened
from fedtide.training.engine.flat import ResidentModule, statistics, trained
from fedtide.training.engine.gradient import Probe
from fedtide.training.models.base import Network
from fedtide.training.programs.interpreter import TRACING
from fedtide.training.programs.program import compiling, trace_graph
from fedtide.training.programs.traces import shared, structure
from fedtide.world.dataset import Dataset

_OWN = ("torch.nn.", "fedtide.")
_BY_VALUE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_PLAIN = (bool, int, float, complex, str, bytes)


def mark_constants(network: Network, data: Dataset) -> None:
    """Note the floating buffers that a forward pass in training mode does not write, such as a table of positions.

    On the run's own samples, of which a BatchNorm needs two. A write counts even if the values stay the same. All buffers are
    taken for statistics where the pass fails, which :func:`refuse_untrainable` reports.
    """
    if not statistics(network):
        return
    like = next(network.parameters())
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.no_grad():
        module = copy.deepcopy(network).train()
        running = [part for part in module.modules() if isinstance(part, _NormBase) and part.training]
        written = {id(value) for part in running for value in part.buffers()}
        before = {name: (value, value._version, value.clone()) for name, value in statistics(module).items()}
        try:
            few = data.prepare(data.read("test", slice(2))[0].to("cpu"), like.dtype).to(like.device)
            module.outputs(torch.cat([few, few]))
        except Exception:
            return
    after = dict(module.named_buffers())
    network.constants = tuple(
        name
        for name, (value, version, copied) in before.items()
        if after.get(name) is value
        and id(value) not in written
        and value._version == version
        and (value.is_meta or torch.equal(value, copied))
    )


def refuse_untrainable(network: Network, inputs: Tensor, classes: int, executor: str) -> None:
    """Refuse a network that an executor cannot train: it draws, writes buffers, cannot be traced, or returns no such logits.

    The network is on the CPU and not changed; ``inputs`` are one or two prepared samples.
    """
    if not trained(network):
        raise SettingsError("the model has no trainable parameters: none has requires_grad=True")
    described = structure(network)
    key = None if described is None else ("probe", described, executor, inputs.shape, inputs.dtype)
    shared(key, lambda: _probe(network, inputs, classes, executor))


def _probe(network: Network, inputs: Tensor, classes: int, executor: str) -> bool:
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False):
        _refuse_impure(network, inputs, classes)
        if any(not type(part).__module__.startswith(_OWN) for part in network.modules()):
            for mode in (True, False):
                _refuse_side_effects(copy.deepcopy(network).train(mode), inputs)
            _refuse_untraceable(copy.deepcopy(network), inputs, executor)
    return True


def _refuse_impure(network: Network, inputs: Tensor, classes: int) -> None:
    module = ResidentModule(network, next(network.parameters()).dtype, inputs.device).network.train()
    kept = {name: value.clone() for name, value in module.named_buffers() if not value.is_floating_point()}
    drawing: list[str] = []
    hooks = []
    for name, part in module.named_modules():
        before: list[Tensor] = []
        hooks.append(part.register_forward_pre_hook(lambda *_, before=before: before.append(torch.get_rng_state())))
        hooks.append(
            part.register_forward_hook(lambda *_, name=name, before=before: _note_draw(name, before.pop(), drawing))
        )
    before_all = torch.get_rng_state()
    try:
        with torch.no_grad():
            logits = module.outputs(inputs.clone()).logits
    except Exception as error:
        raise SettingsError(f"the model fails in training mode: {_words(error)}") from error
    for hook in hooks:
        hook.remove()
    if logits.shape != (len(inputs), classes):
        raise SettingsError(f"the model's logits in training mode have shape {list(logits.shape)}, not [B, {classes}]")
    if not torch.equal(torch.get_rng_state(), before_all):
        layer = network.stored_name(drawing[0]) if drawing else ""
        where = f"its layer {layer}" if layer else "its forward"
        raise SettingsError(
            "the model's forward uses unseeded randomness in training, which would make runs irreproducible: "
            f"{where}; set its dropout to 0 and use nn.Dropout layers, whose masks are seeded"
        )
    counted = {
        f"{name}.num_batches_tracked".lstrip(".")
        for name, part in module.named_modules()
        if isinstance(part, _NormBase) and part.momentum is not None
    }
    written = [
        name
        for name, value in module.named_buffers()
        if name in kept and name not in counted and not torch.equal(value, kept[name])
    ]
    if written:
        name = network.stored_name(written[0])
        hint = "; give the norm a momentum" if name.endswith("num_batches_tracked") else ""
        raise SettingsError(
            f"training writes the model's buffer {name}, which holds integers and is not sent by clients{hint}"
        )
    if lost := statistics(network).keys() - network.state_dict().keys():
        raise SettingsError(
            f"training changes the model's buffer {network.stored_name(min(lost))}, which files of the model leave out: "
            "register it without persistent=False"
        )


def _note_draw(name: str, before: Tensor, drawing: list[str]) -> None:
    """Note a layer that has drawn; those inside of it end first."""
    if not torch.equal(torch.get_rng_state(), before):
        drawing.append(name)


def _refuse_side_effects(network: Network, inputs: Tensor) -> None:
    """Refuse a network, which is changed, whose second call on the same inputs gives other outputs, or could."""

    def state() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place, part in network.named_modules():
            path = f"{place}." if place else ""
            found |= {f"{path}{name}": value for name, value in vars(part).items() if isinstance(value, _PLAIN)}
            found |= {f"{path}{name}": id(value) for name, value in part.named_buffers(recurse=False)}
        return found

    buffers = {name: value.clone() for name, value in network.named_buffers()}
    before, drawn = state(), _foreign_generators()
    with torch.no_grad():
        first = network.outputs(given := inputs.clone()).logits
        after = state()
        for name, value in network.named_buffers():
            if name in buffers:
                value.copy_(buffers[name])
        second = network.outputs(inputs.clone()).logits
    if not torch.equal(given, inputs):
        raise SettingsError("the model's forward writes into its inputs, which are the data; let it work on a copy")
    if drawn != _foreign_generators():
        raise SettingsError(
            "the model's forward draws from a generator of Python or NumPy, which would make runs irreproducible; use "
            "nn.Dropout layers, whose masks are seeded"
        )
    for name in sorted(before.keys() | after.keys()):
        was, is_ = before.get(name), after.get(name)
        if was is not is_ and was != is_:  # a NaN that stays is not equal to itself
            raise SettingsError(
                f"the model's forward changes its attribute {network.stored_name(name)}, so its outputs could depend on "
                "earlier calls; statistics go into a floating buffer that forward writes in place, as in self.mean.copy_(...)"
            )
    if not torch.equal(first, second):
        raise SettingsError("the model's forward gives other outputs when it is called again with the same inputs")


def _foreign_generators() -> tuple[Any, ...]:
    """States of the global generators of Python and NumPy."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpy[1].tobytes(), numpy[2]


def _refuse_untraceable(network: Network, inputs: Tensor, executor: str) -> None:
    """Refuse a network that does not run for several clients at once if stacked, or whose traces fail on other samples.

    Logits in evaluation mode are always traced, gradients where the executor does not run the network as written.
    """
    probe, values = Probe(network), {name: value.detach() for name, value in trained(network).items()}

    def loss(parameters: dict[str, Tensor], batch: Tensor) -> Tensor:
        state = {f"network.{name}": value for name, value in parameters.items()}
        outputs: Tensor = functional_call(probe, state, (batch,)).logits
        return outputs.square().mean()

    def gradients(*arguments: Tensor) -> tuple[Tensor, ...]:
        return tuple(grad(loss)(dict(zip(values, arguments, strict=False)), arguments[-1]).values())

    def logits(*arguments: Tensor) -> tuple[Tensor, ...]:
        outputs: Tensor = functional_call(network, dict(zip(values, arguments, strict=False)), (arguments[-1],))
        return (outputs,)

    try:
        if executor == "stacked":
            twice = {name: torch.stack([value, value]) for name, value in values.items()}
            with TRACING, compiling():
                vmap(grad(loss))(twice, torch.stack([inputs, inputs]))
        same = executor == "resident" or _is_repeated(gradients, [*values.values()], inputs)
        network.eval()
        with torch.no_grad():
            same &= _is_repeated(logits, [*values.values()], inputs)
    except Exception as error:
        raise SettingsError(_refusal(executor, error)) from error
    if not same:
        raise SettingsError(
            "the model's forward depends on values in Python (as by item(), tolist(), unique or nonzero), which traces do "
            "not follow; use tensor operations alone"
        )


def _is_repeated(function: Callable[..., tuple[Tensor, ...]], values: list[Tensor], inputs: Tensor) -> bool:
    """Whether a function, traced on some samples, gives on others what it gives as written."""
    graph = trace_graph(function, [*values, inputs])
    operations = {node.target for node in graph.graph.nodes} - {
        torch.ops.aten.index.Tensor
    }  # by value if an index is a mask
    if any(_BY_VALUE & {*getattr(operation, "tags", ())} for operation in operations):
        return False
    others = (
        [-inputs.flip(0), 3 * inputs, inputs * 0] if inputs.is_floating_point() else [inputs.flip(-1), inputs.flip(0)]
    )
    return all(
        torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6 * max(1.0, float(theirs.abs().max())), equal_nan=True)
        for other in others
        for ours, theirs in zip(graph(*values, other), function(*values, other), strict=True)
    )


def _refusal(executor: str, error: Exception) -> str:
    if executor == "stacked":
        return (
            f"engine.executor = 'stacked': the model does not run for several clients at once ({_words(error)}); "
            "use 'threads'"
        )
    return (
        f"the model cannot be traced ({_words(error)}): its forward should neither depend on values, as in `if x.sum() > 0`, "
        "nor use torch.utils.checkpoint"
    )


def _words(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
