"""Replay on a GPU: work is recorded as a CUDA graph, which is launched as a whole.

A local step of a small network is some forty kernels of a few microseconds, whose launches take several times as long.
"""

from collections.abc import Callable, Sequence

import torch

Work = Callable[[], None]
"""Reads and writes tensors that stay where they are."""

_last: dict[torch.device, tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]] = {}
"""The last graph of a GPU and its stream. The next one uses their memory, which needs the same stream and a living graph."""
_streams: dict[torch.device, list[torch.cuda.Stream]] = {}
"""Those of work side by side."""


def can_record(device: torch.device) -> bool:
    """Whether work on a device can be recorded."""
    return device.type == "cuda"


class Replay:
    """The first call executes the work, the second records it, further ones replay it: the same bits.

    What cannot be recorded, because it waits for the GPU, is executed.
    """

    def __init__(self, work: Work, device: torch.device) -> None:
        self._work, self._device, self._calls = work, device, 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == 2:
            self._work = record(self._work, self._device) or self._work
        self._work()


def record(work: Work, device: torch.device) -> Work | None:
    """The work as a recording, not yet executed; None if it cannot be recorded."""
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    pool, stream = None, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    if device in _last:
        before, stream = _last[device]
        pool = before.pool()
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
    except RuntimeError:
        return None
    current.wait_stream(stream)
    _last[device] = graph, stream
    return graph.replay


def side_by_side(works: Sequence[Work], device: torch.device) -> None:
    """Execute, or record, independent work in a stream each; later work on the current stream waits for all."""
    known, current = _streams.setdefault(device, []), torch.cuda.current_stream(device)
    while len(known) < len(works):
        known.append(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    start = current.record_event()
    for work, stream in zip(works, known, strict=False):
        stream.wait_event(start)
        with torch.cuda.stream(stream):
            work()
    for _, stream in zip(works, known, strict=False):
        current.wait_stream(stream)
