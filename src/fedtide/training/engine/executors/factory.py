"""The executor of a run, and what a network may not do with it, looked for on two samples before training.

A local step must be a pure function of parameters, statistics, a batch and a key, or results would depend on which worker
trained which client. BatchNorm's statistics, GroupNorm, LayerNorm, attention, keyed dropout and buffers of integers that stay
as they are fit that. Refused are draws from torch's generator, other buffers that training writes, and, where steps are
traced, control flow that depends on values.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedtide.core.errors import SettingsError, shortened
from fedtide.settings.run import EngineSettings
from fedtide.training.engine.executors.executor import Executor
from fedtide.training.engine.executors.resident import Resident
from fedtide.training.engine.executors.stacked import Stacked
from fedtide.training.engine.executors.threads import Threads
from fedtide.training.engine.flat import ResidentModule, trained
from fedtide.training.engine.gradient import Probe
from fedtide.training.engine.task import TINY, Task
from fedtide.training.models.base import Network
from fedtide.training.programs.program import trace_plain
from fedtide.training.programs.traces import shared, structure
from fedtide.training.resources.workers import Workers

_OWN = ("torch.nn.", "fedtide.")


def executor_name(network: nn.Module, device: torch.device, engine: EngineSettings, family: str) -> str:
    """Name of the executor for a network: a fixed rule on (model family, size, device), never a timing.

    ``stacked`` on an accelerator and for tiny linear models and MLPs, ``threads`` otherwise; ``resident`` for
    networks with floating buffers (BatchNorm), whose batches cannot be padded.

    Raises:
        SettingsError: ``stacked`` is set for a network with floating buffers, or BatchNorm keeps no running statistics.
    """
    norms = [part for part in network.modules() if isinstance(part, _BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        raise SettingsError(
            "the model has BatchNorm without running statistics, which single samples require; set "
            "track_running_stats=True"
        )
    floating = any(value.is_floating_point() for value in network.buffers())
    if engine.executor == "stacked" and floating:
        raise SettingsError(
            "engine.executor = 'stacked': the model has BatchNorm statistics; use 'threads' or norm: group"
        )
    if floating:
        return "resident"
    if engine.executor != "auto":
        return engine.executor
    size = sum(value.numel() for value in network.parameters())
    tiny = family in ("linear", "mlp") and size <= TINY
    return "stacked" if tiny or device.type != "cpu" else "threads"


def image_layout(engine: EngineSettings, channels_last: bool, device: torch.device) -> torch.memory_format:
    """Memory layout of image batches: as set, else what the model prefers on a CPU (except under ``vmap``)."""
    if engine.layout == "auto":
        preferred = channels_last and device.type == "cpu" and engine.executor != "stacked"
        return torch.channels_last if preferred else torch.contiguous_format
    return torch.channels_last if engine.layout == "channels_last" else torch.contiguous_format


def make(task: Task, workers: Workers, engine: EngineSettings, family: str) -> Executor:
    """The executor of a run."""
    name = executor_name(task.network, task.device, engine, family)
    if name == "stacked":
        return Stacked(task, workers, engine.chunk)
    return Resident(task, workers) if name == "resident" else Threads(task, workers)


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
            _refuse_untraceable(network, inputs, executor)
    return True


def _refuse_impure(network: Network, inputs: Tensor, classes: int) -> None:
    module = ResidentModule(network, next(network.parameters()).dtype, inputs.device).network.train()
    kept = {name: value.clone() for name, value in module.named_buffers() if not value.is_floating_point()}
    drawing, hooks = list[str](), []
    for name, part in module.named_modules():
        before: list[Tensor] = []
        hooks.append(part.register_forward_pre_hook(lambda *_, before=before: before.append(torch.get_rng_state())))
        hooks.append(
            part.register_forward_hook(lambda *_, name=name, before=before: _note_draw(name, before.pop(), drawing))
        )
    before_all = torch.get_rng_state()
    try:
        with torch.no_grad():
            logits = module.outputs(inputs).logits
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
            f"{where}; use nn.Dropout layers, whose masks are seeded, or set its dropout to 0"
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


def _note_draw(name: str, before: Tensor, drawing: list[str]) -> None:
    """Note a layer that has drawn; those inside of it end first."""
    if not torch.equal(torch.get_rng_state(), before):
        drawing.append(name)


def _refuse_untraceable(network: Network, inputs: Tensor, executor: str) -> None:
    """Trace the logits, as in the mode that an executor traces, and take gradients for two clients at once if stacked."""
    probe, values = Probe(network), {name: value.detach() for name, value in trained(network).items()}
    training = network.training

    def loss(parameters: dict[str, Tensor], batch: Tensor) -> Tensor:
        state = {f"network.{name}": value for name, value in parameters.items()}
        outputs: Tensor = functional_call(probe, state, (batch,)).logits
        return outputs.square().mean()

    def logits(*arguments: Tensor) -> Tensor:
        outputs: Tensor = functional_call(network, dict(zip(values, arguments, strict=False)), (arguments[-1],))
        return outputs

    try:
        with torch.no_grad():
            network.train(executor == "threads")
            trace_plain(logits, [*values.values(), inputs])
            if executor == "stacked":
                network.train()
                twice = {name: torch.stack([value, value]) for name, value in values.items()}
                vmap(grad(loss))(twice, torch.stack([inputs, inputs]))
    except Exception as error:
        raise SettingsError(_refusal(executor, error)) from error
    finally:
        network.train(training)


def _refusal(executor: str, error: Exception) -> str:
    if executor == "stacked":
        return (
            f"engine.executor = 'stacked': the model does not run for several clients at once ({_words(error)}); "
            "use 'threads'"
        )
    return (
        f"the model cannot be traced ({_words(error)}): its forward should not depend on values, as in `if x.sum() > 0`"
    )


def _words(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
