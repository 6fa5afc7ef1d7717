"""Traced programs, shared by all runs of a process: tracing costs a tenth of a second per shape, as much as a small run."""

import hashlib
import io
import pickle
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedtide.training.programs.program import trace_as_written

Program = TypeVar("Program")

_MOST = 256  # programs kept; the least recently used one is dropped first
_programs: OrderedDict[Any, Future[Any]] = OrderedDict()
_lock = threading.Lock()
_code: dict[int, Any] = {}
"""Classes and functions that keys refer to by address; kept alive, so that addresses are not reused."""


def shared(key: Any | None, make: Callable[[], Program]) -> Program:
    """The program of a key, made once, however many threads ask; with a key of ``None`` it is not kept."""
    if key is None:
        return make()
    with _lock:
        known: Future[Program] | None = _programs.get(key)
        program = known or Future()
        _programs[key] = program
        _programs.move_to_end(key)
        if len(_programs) > _MOST:
            _programs.popitem(last=False)
    if known is None:
        try:
            program.set_result(make())
        except BaseException as error:
            with _lock:
                _programs.pop(key, None)
            program.set_exception(error)
    return program.result()


Trace = Callable[[Callable[..., Any], Sequence[Tensor]], Callable[..., Any]]


class Traced:
    """A pure function of tensors, traced once per shape; its control flow may depend on shapes only.

    By default with the bits of the function itself. Other arguments can be bound by ``partial``.

    Args:
        depends: what the trace depends on beside the arguments, where that is not the function itself. Described at once:
            while a thread traces, a network holds its tensors.
        trace: makes the program.
    """

    def __init__(
        self, function: Callable[..., Any], depends: tuple[Any, ...] = (), trace: Trace = trace_as_written
    ) -> None:
        self._function, self._trace = function, trace
        self._described = structure(*(depends or (function,)))
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Tensor) -> Any:
        shape = shapes(arguments)
        program = self._programs.get(shape)
        if program is None:
            key = None if self._described is None else ("traced", self._described, shape)
            program = self._programs.setdefault(shape, shared(key, partial(self._trace, self._function, arguments)))
        return program(*arguments)


def structure(*parts: Any) -> bytes | None:
    """What a trace depends on in some objects, without the values of trained parameters: equal bytes for equal objects.

    ``None`` if an object cannot be described.
    """
    stream = io.BytesIO()
    try:
        _Describing(stream, protocol=5).dump(parts)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):  # parametrized modules raise the last one
        return None
    return stream.getvalue()


def shapes(arguments: Sequence[Tensor]) -> tuple[Any, ...]:
    """What a trace depends on in its arguments."""
    return tuple(map(_about, arguments))


def _about(value: Tensor) -> tuple[Any, ...]:
    return tuple(value.shape), value.dtype, value.stride(), value.device, value.requires_grad


def _content(value: Tensor) -> bytes:
    return hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).digest()


class _Describing(pickle.Pickler):
    """Code by identity, parameters that are trained by shape, what has a ``trace_key`` by that, everything else by value."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return "tensor", _about(obj), None if isinstance(obj, nn.Parameter) and obj.requires_grad else _content(obj)
        if (key := getattr(obj, "trace_key", None)) is not None:
            return "key", key
        if getattr(obj, "__closure__", None):
            raise pickle.PicklingError("a closure can hold anything")
        if isinstance(obj, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            _code[id(obj)] = obj
            return "code", id(obj)
        if isinstance(obj, torch.dtype | torch.memory_format | torch.device):
            return "torch", str(obj)
        return None
