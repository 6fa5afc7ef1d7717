"""The jobs of a command on a cluster: handed to Dask, which repeats those of lost workers; their questions are answered."""

from __future__ import annotations

import contextlib
import pickle
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from fedtide.runs.jobs.cluster import worker
from fedtide.runs.jobs.cluster.connect import Cluster
from fedtide.runs.jobs.jobs import ATTEMPTS, Failure, Job, Jobs, Result
from fedtide.runs.jobs.signals import StopSignals

if TYPE_CHECKING:
    from distributed import Future

_POLL = 0.2  # seconds until a signal, or a lost scheduler, is noticed
_FETCHING = 30.0  # seconds to fetch a result
_REPLACING = 5.0  # seconds after which lost workers are replaced


def run_on_cluster(
    jobs: Jobs[Job, Result], cluster: Cluster, program: bytes, count: int, log: Callable[[str], None]
) -> int | None:
    """Do all jobs on the workers of a cluster; contract as :func:`fedtide.runs.jobs.jobs.run_in_workers`.

    ``count`` of them at once, 0 for as many as the workers have threads. ``log`` gets a line while there are no workers.

    Raises:
        OSError: the scheduler is gone.
    """
    with StopSignals() as stop:
        pool = _Pool(jobs, cluster, program, stop, log)
        try:
            pool.run(count)
        finally:
            pool.close()
    return stop.received


@dataclass
class _Flight(Generic[Job]):
    """A job that Dask has; where it has begun last, if it has; and why it would begin again."""

    job: Job
    future: Future[bytes]
    place: str = ""
    address: str = ""
    reason: str = ""


class _Pool(Generic[Job, Result]):
    def __init__(
        self, jobs: Jobs[Job, Result], cluster: Cluster, program: bytes, stop: StopSignals, log: Callable[[str], None]
    ) -> None:
        self._jobs, self._cluster, self._client, self._stop, self._log = jobs, cluster, cluster.client, stop, log
        self._name, self._program = f"fedtide-{uuid.uuid4().hex}", program
        self._flights: dict[int, _Flight[Job]] = {}
        self._inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._begun, self._told = 0, False
        self._client.subscribe_topic(self._name, lambda event: self._inbox.put(tuple(event[1])))

    def run(self, count: int) -> None:
        """Until all jobs have ended, or, after a signal, those in progress."""
        replaced = time.monotonic() - _REPLACING
        while True:
            with self._reaching():
                if self._stop.received is None:
                    self._fill(count)
                elif not self._told:
                    self._tell()
            if not self._flights:
                return
            if time.monotonic() - replaced > _REPLACING:
                replaced = time.monotonic()
                self._cluster.replace_lost()
            for kind, *facts in self._events():
                self._handle(kind, *facts)
            for number, flight in list(self._flights.items()):
                if flight.future.done():
                    self._take(number, flight)

    def close(self) -> None:
        """Stop what is in progress; nobody waits for it any more."""
        with contextlib.suppress(OSError):
            if self._client.status == "running":
                self._client.unsubscribe_topic(self._name)
                self._client.run(worker.stop, self._name, on_error="ignore")

    def _fill(self, count: int) -> None:
        """Hand out as many jobs as there are free threads, so that Dask has nothing to choose; without threads one job."""
        threads = sum(self._client.nthreads().values())
        while len(self._flights) < max(1, min(count or threads, threads)) and (job := self._jobs.next()) is not None:
            if threads == 0:
                self._log(f"{self._cluster.name}: waiting for a worker")
            self._begun += 1
            self._flights[self._begun] = _Flight(job, self._submitted(self._begun, job))

    def _submitted(self, number: int, job: Job) -> Future[bytes]:
        arguments = self._name, self._program, number, pickle.dumps(job)
        future = self._client.submit(worker.do, *arguments, retries=ATTEMPTS - 1, pure=False)
        future.add_done_callback(lambda _: self._inbox.put(("done",)))
        return future

    def _tell(self) -> None:
        """After a signal: drop jobs that have not begun, tell the others to stop."""
        self._told = True
        for number in [number for number, flight in self._flights.items() if not flight.place]:
            self._flights.pop(number).future.cancel()
        self._client.run(worker.stop, self._name, on_error="ignore")

    def _events(self) -> Iterator[tuple[Any, ...]]:
        """Those that have arrived, or the next one if it comes soon."""
        with contextlib.suppress(queue.Empty):
            yield self._inbox.get(timeout=_POLL)
            while True:
                yield self._inbox.get_nowait()

    def _handle(self, kind: str, *facts: Any) -> None:
        if kind == "done" or (flight := self._flights.get(facts[0])) is None:
            return
        number, what, address = facts
        if kind == worker.BEGAN:
            if flight.place:
                self._jobs.repeat(flight.job, f"{flight.reason} ({flight.place})")
            flight.place, flight.address, flight.reason = what, address, "its worker was lost"
            self._jobs.begin(flight.job, what)
        elif address == flight.address and kind == worker.LEFT:
            flight.reason = what
        elif address == flight.address:  # if it is lost meanwhile, the job begins elsewhere, and asks again
            content = pickle.dumps(self._jobs.answer(flight.job, pickle.loads(what)))
            with self._reaching():
                self._client.run(worker.answer, self._name, number, content, workers=[address], on_error="ignore")

    def _take(self, number: int, flight: _Flight[Job]) -> None:
        """Take the result of a job, or the reason why there is none."""
        from distributed import KilledWorker

        end: Any
        try:
            with self._reaching():
                end = pickle.loads(flight.future.result(timeout=_FETCHING))
        except (TimeoutError, CancelledError):
            if flight.future.status != "cancelled":  # the result was lost with its worker: Dask has begun the job again
                return
            end = Failure("the scheduler has dropped it")
        except worker.ProcessDied as error:
            end = Failure(f"{error}, at each of {ATTEMPTS} attempts")
        except KilledWorker as error:
            end = Failure(f"job failed: {error.allowed_failures + 1} workers died while running it")
        stopping = self._stop.received is not None
        if isinstance(end, Failure) and stopping:
            del self._flights[number]
        elif stopping or isinstance(end, Failure) or not self._jobs.is_interrupted(end):
            del self._flights[number]
            self._jobs.finish(flight.job, end)
        else:  # its process alone was told to stop
            flight.reason = "its process was told to stop"
            flight.future = self._submitted(number, flight.job)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Calls of the scheduler inside fail in one line if it is gone."""
        try:
            if self._client.status == "running":
                yield
                return
        except OSError:
            pass
        raise OSError(
            f"lost connection to the Dask scheduler of {self._cluster.name}; completed runs are kept; re-run the "
            "command to resume the remaining runs from their checkpoints"
        )
