"""Replay on a GPU: a function is recorded as a CUDA graph, which is launched as a whole.

A local step of a small network is some forty kernels of a few microseconds, whose launches take several times as long.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[..., Tensor]

LEAST = 8  # calls from which a recording is worth its time, about that of two calls
_last: dict[torch.device, tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]] = {}
"""The last graph of a GPU and its stream. The next one uses their memory, which needs the same stream and a living graph."""


def replayed(function: Step, device: torch.device, calls: int) -> Step:
    """``function``, or on a GPU what is launched faster and computes the same bits, if it is called often.

    Its arguments are tensors on ``device`` or ``None``; other tensors that it reads and writes must stay where they are. The
    result holds until the next call.
    """
    return Replay(function, device) if device.type == "cuda" and calls >= LEAST else function


class Replay:
    """The first call with arguments of some shapes executes the function, the second records it, further ones replay it.

    What cannot be recorded, because it waits for the GPU, is executed.
    """

    def __init__(self, function: Step, device: torch.device) -> None:
        self.function, self.device = function, device
        self._recorded: dict[object, Callable[..., Tensor] | None] = {}

    def __call__(self, *arguments: Tensor | None) -> Tensor:
        shapes = tuple(None if value is None else value.shape for value in arguments)
        if shapes not in self._recorded:
            self._recorded[shapes] = None
            return self.function(*arguments)
        if self._recorded[shapes] is None:
            self._recorded[shapes] = self._record(arguments) or self.function
        return self._recorded[shapes](*arguments)  # type: ignore[misc]

    def _record(self, arguments: tuple[Tensor | None, ...]) -> Step | None:
        held = [None if value is None else value.clone() for value in arguments]
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        pool, stream = None, torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        if self.device in _last:
            before, stream = _last[self.device]
            pool = before.pool()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                graph.capture_begin(pool, capture_error_mode="thread_local")
                try:
                    result = self.function(*held)
                finally:
                    graph.capture_end()
        except RuntimeError:
            return None
        current.wait_stream(stream)
        _last[self.device] = graph, stream

        def replay(*values: Tensor | None) -> Tensor:
            for own, value in zip(held, values, strict=True):
                if own is not None and value is not None:
                    own.copy_(value)
            graph.replay()
            return result

        return replay
