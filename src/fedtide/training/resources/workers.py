"""This process set up for training, and its pool of worker threads, each with one resident module and one intra-op thread.

torch releases the GIL inside its kernels, so threads over disjoint rows use all cores. Results come in the order of the items:
nothing depends on the number of workers or on which one was faster.
"""

import ctypes
import os
import queue
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import torch

from fedtide.settings.run import EngineSettings
from fedtide.training.engine.flat import ResidentModule
from fedtide.training.engine.forward import Forward
from fedtide.training.engine.task import Task
from fedtide.training.resources.control_groups import processors

Item = TypeVar("Item")
Result = TypeVar("Result")

_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # numbers of glibc's mallopt


def available_cores() -> int:
    """Cores this process may use: those it is bound to, within quotas of control groups and ``OMP_NUM_THREADS``."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of the outermost level
    return max(1, min(bound, *processors(), int(wanted) if wanted.isdecimal() else bound))


def prepare_process(engine: EngineSettings, device: torch.device) -> str:
    """Set up this process for training on ``device``; returns a few words for the log.

    On a CPU, operations use one thread each: the workers use the cores, and sums must not depend on how many there are. On a
    GPU, convolutions add in the same order every time, and TensorFloat-32 is used only if it was chosen.
    """
    if device.type == "cpu":
        facts = [f"one torch thread per operation; {torch.backends.cpu.get_cpu_capability()}"]
        torch.set_num_threads(1)
    else:
        facts, tf32 = [device.type], engine.precision == "tf32"
        facts += ["TensorFloat-32"] * tf32
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.deterministic = True
    if engine.allocator == "keep":
        facts.append("freed memory is kept" if _keep_freed_memory() else "default allocator")
    return ", ".join(facts)


def _keep_freed_memory() -> bool:
    """Make glibc keep freed memory: otherwise each large temporary is mapped, zeroed and unmapped at every step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all([mallopt(_ARENA_MAX, 1), mallopt(_MMAP_THRESHOLD, 1 << 30), mallopt(_TRIM_THRESHOLD, 2**31 - 1)])


class WorkerState:
    """The modules of one worker: the one in training, and frozen reference modules, made on first use."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.module = ResidentModule(task.network, task.dtype, task.device)
        self._frozen: dict[str, ResidentModule] = {}

    def frozen(self, name: str) -> ResidentModule:
        """A resident module in evaluation mode for the reference ``name``."""
        if name not in self._frozen:
            self._frozen[name] = ResidentModule(self._task.network, self._task.dtype, self._task.device)
            self._frozen[name].network.eval()
        return self._frozen[name]


class Workers:
    """Runs functions of (worker state, item) on all cores."""

    def __init__(self, task: Task, count: int = 0) -> None:
        self.task = task
        self.count = 1 if task.device.type != "cpu" else count or available_cores()
        self._idle: queue.SimpleQueue[WorkerState] = queue.SimpleQueue()
        for _ in range(self.count):
            self._idle.put(WorkerState(task))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count, "fedtide", initializer=torch.set_num_threads, initargs=(1,))

    @cached_property
    def beside(self) -> ThreadPoolExecutor:
        """A further thread, for what the CPU does while a GPU trains."""
        return ThreadPoolExecutor(1, "fedtide-beside")

    @cached_property
    def forward(self) -> Forward:
        return Forward(self.task)

    def map(self, function: Callable[[WorkerState, Item], Result], items: Iterable[Item]) -> list[Result]:
        """``[function(worker, item) for item in items]``; after an error, which is raised, no further item is begun."""
        todo = list(items)
        results: dict[int, Result] = {}
        numbers = iter(range(len(todo)))  # shared: whoever is free takes the next, in one hand-over per worker

        def work() -> None:
            worker = self._idle.get()
            try:
                for number in numbers:
                    results[number] = function(worker, todo[number])
            finally:
                deque(numbers, maxlen=0)  # after an error nothing more is begun
                self._idle.put(worker)

        try:
            for future in [self._pool.submit(work) for _ in range(min(self.count, len(todo)))]:
                future.result()
        finally:
            deque(numbers, maxlen=0)  # nor after an interrupt
        return [results[number] for number in range(len(todo))]

    def close(self) -> None:
        """End the threads; further work begins new ones."""
        if "_pool" in self.__dict__:
            self._pool.shutdown(wait=True, cancel_futures=True)
            del self._pool
        if "beside" in self.__dict__:
            self.beside.shutdown()  # without cancelling: drawing takes milliseconds, and training may go on
            del self.beside
