"""A stand-in accelerator: a device of PyTorch whose memory is the host's and whose kernels are those of the CPU.

Its tensors are treated as those of a card: only ``.to`` and ``.cpu`` move them, ``.numpy`` refuses them, and an operation
that mixes devices fails where CUDA's would.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import Library
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as register

NAME = "standin"
_CPU, _EXTENSION = 1, 12
"""Device types of DLPack."""

_aten = torch.ops.aten
_COPIES = {_aten._copy_from, _aten._copy_from_and_resize}
_INDEXING = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl, _aten._index_put_impl_}


class _Head(ctypes.Structure):
    """The first fields of DLPack's tensor."""

    _fields_ = (("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _renamed(tensor: Tensor, kind: int) -> Tensor:
    """The same memory as a tensor of another device."""
    capsule = torch._C._to_dlpack(tensor)
    _Head.from_address(_pointer(capsule, b"dltensor")).kind = kind
    with torch.inference_mode(False):  # views of other tensors could not be made
        result: Tensor = torch._C._from_dlpack(capsule)
    return result


def _mapped(function: Any, value: Any) -> Any:
    """A function of tensors and devices applied to an argument or a result."""
    if isinstance(value, list | tuple):
        return [_mapped(function, item) for item in value]
    return function(value) if isinstance(value, Tensor | torch.device) else value


def _on_host(value: Tensor | torch.device) -> Tensor | torch.device:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return _renamed(value, _CPU) if value.device.type == NAME else value


class _Form(NamedTuple):
    """What is known of an operation: its arguments, and those that are tensors, written, or results."""

    names: list[str]
    tensors: set[str]
    written: set[str]
    out: list[str]
    indexing: bool
    arithmetic: bool


@cache
def _form(operation: Any) -> _Form:
    arguments, indexing = operation._schema.arguments, operation.overloadpacket in _INDEXING
    return _Form(
        [each.name for each in arguments],
        {each.name for each in arguments if each.type.kind() == "TensorType"},
        {each.name for each in arguments if each.alias_info is not None and each.alias_info.is_write},
        [each.name for each in arguments if each.is_out],
        indexing,
        indexing or torch.Tag.pointwise in operation.tags,
    )


def _refuse_mixture(operation: Any, form: _Form, given: dict[str, Any]) -> None:
    """What CUDA refuses: tensors of the CPU other than indices and single numbers in arithmetic; the CPU's generators."""
    for name, value in given.items():
        if isinstance(value, torch.Generator):
            raise RuntimeError(f"{operation}: a generator of the {value.device}")
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(tensor, Tensor) or tensor.device.type == NAME:
                continue
            number = form.arithmetic and tensor.dim() == 0 and name not in form.written
            if not number and not (form.indexing and name == "indices"):
                raise RuntimeError(f"{operation}: {name} {list(tensor.shape)} is on {tensor.device}")


def _shape(value: Any) -> Any:
    return (value.shape, value.stride()) if isinstance(value, Tensor) else None


def _kernel(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation of the device: the CPU's kernel on the same memory."""
    form = _form(operation)
    given = dict(zip(form.names, args, strict=False)) | kwargs
    if operation.overloadpacket in _COPIES:
        _mapped(_on_host, given["dst"]).copy_(_mapped(_on_host, given["self"]))
        return given["dst"]
    if operation is _aten.set_.source_Storage:  # which copies storages, as saving does
        return _over(given["self"], given["source"])
    _refuse_mixture(operation, form, given)
    host = {name: _mapped(_on_host, value) for name, value in given.items()}
    for name in form.out:
        if not given[name].numel():
            host[name] = torch.empty(0, dtype=given[name].dtype)  # of any size in the end
    before = {name: _shape(host[name]) for name in form.written}
    number = any(isinstance(host.get(name), int | float) for name in form.tensors)  # which has an overload of its own
    results = (operation.overloadpacket if number else operation)(**host)
    same = {id(host[name]): value for name, value in given.items() if isinstance(value, Tensor)}
    for name, shape in before.items():
        if _shape(host[name]) != shape:
            given[name].data = _renamed(host[name], _EXTENSION)

    def on_device(value: Any) -> Any:
        return same[id(value)] if id(value) in same else _renamed(value, _EXTENSION)

    return _mapped(on_device, results)


def _over(tensor: Tensor, storage: torch.UntypedStorage) -> Tensor:
    """Let a tensor be all of a storage."""
    same = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
    tensor.data = _renamed(torch.empty(0, dtype=tensor.dtype).set_(same), _EXTENSION)
    return tensor


def _convolution(*args: Any) -> Any:
    return _kernel(_aten.convolution.default, *args)


def _convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *args: Any) -> Any:
    return _kernel(_aten.convolution_backward.default, gradient, inputs, weight, [len(weight)], *args)


@cache
def _registered() -> tuple[Library, Library]:
    register(NAME)
    everything, convolutions = Library("_", "IMPL"), Library("aten", "IMPL")
    everything.fallback(_kernel, "PrivateUse1")
    convolutions.impl("convolution_overrideable", _convolution, "PrivateUse1")
    convolutions.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
    return everything, convolutions


def device() -> torch.device:
    """The device; it exists from the first call on, for the rest of the process."""
    _registered()
    return torch.device(NAME, 0)


class _Recorder(TorchDispatchMode):
    """Keeps every operation with the very tensors and numbers that it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = list[tuple[Any, Any, Any, Any]]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        leaves = [value for value in tree_leaves((args, kwargs, result)) if isinstance(value, Tensor)]
        if len({value.device.type for value in leaves if value.dim()}) > 1 or not isinstance(
            result, Tensor | list | tuple
        ):
            raise RuntimeError(f"{operation} waits for the device, which cannot be recorded")
        self.calls.append((operation, args, kwargs, result))
        return result

    def replay(self) -> None:
        """Call them again; new results take the places of the old ones."""
        for operation, args, kwargs, result in self.calls:
            found = operation(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(found), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def record(work: Callable[[], None], device: torch.device) -> Callable[[], None] | None:
    """A recording as CUDA makes one: of kernels, addresses and numbers. Its first call has taken place with the recording."""
    recorder, calls = _Recorder(), [0]
    try:
        with recorder:
            work()
    except RuntimeError:
        return None

    def again() -> None:
        calls[0] += 1
        if calls[0] > 1:
            recorder.replay()

    return again
