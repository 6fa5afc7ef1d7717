"""The jobs of a command on a cluster: handed to its workers, whose questions are answered; jobs of lost workers restart."""

from __future__ import annotations

import contextlib
import pickle
import queue
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from fedtide.runs.jobs.cluster import worker
from fedtide.runs.jobs.cluster.connect import Cluster
from fedtide.runs.jobs.jobs import ATTEMPTS, Failure, Job, Jobs, Result, how_it_ended
from fedtide.runs.jobs.signals import StopSignals

if TYPE_CHECKING:
    from distributed import Future

LOSSES = 10
"""Workers that may be lost per job. Losing a machine is no fault of the job; but one that needs more memory than any machine
has is given up."""

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
    """A job that the scheduler has, where it is in progress (empty if nowhere), and how many workers were lost with it."""

    job: Job
    future: Future[Any]
    attempt: int = 1
    losses: int = 0
    place: str = ""
    address: str = ""


class _Pool(Generic[Job, Result]):
    def __init__(
        self, jobs: Jobs[Job, Result], cluster: Cluster, program: bytes, stop: StopSignals, log: Callable[[str], None]
    ) -> None:
        self._jobs, self._cluster, self._client, self._stop, self._log = jobs, cluster, cluster.client, stop, log
        self._command = worker.Command(f"fedtide-{uuid.uuid4().hex}", program)
        self._flights: dict[int, _Flight[Job]] = {}
        self._inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._begun, self._told = 0, False
        self._ahead: Job | None = None
        self._client.subscribe_topic(self._command.name, lambda event: self._inbox.put(tuple(event[1])))

    def run(self, count: int) -> None:
        """Until all jobs have ended, or, after a signal, those in progress."""
        idle = _REPLACING
        while True:
            with self._reaching():
                if self._stop.received is None:
                    self._fill(count)
                elif not self._told:
                    self._tell()
            if not self._flights and self._ahead is None:
                return
            try:
                self._handle(*self._inbox.get(timeout=_POLL))
            except queue.Empty:
                idle += _POLL
            if idle >= _REPLACING:
                idle = 0.0
                self._cluster.replace_lost()

    def close(self) -> None:
        """Stop what is in progress; nobody waits for it any more."""
        with contextlib.suppress(OSError):
            if self._client.status == "running":
                self._client.unsubscribe_topic(self._command.name)
                self._client.run(worker.stop, self._command.name, on_error="ignore")

    def _fill(self, count: int) -> None:
        """Hand out as many jobs as there are free threads, so that the scheduler has nothing to choose."""
        threads = sum(self._client.nthreads().values())
        room = min(count or threads, threads) - len(self._flights)
        while room > 0 and (job := self._next()) is not None:
            self._begun += 1
            self._flights[self._begun] = _Flight(job, self._submitted(self._begun, job))
            room -= 1
        if threads == 0 and self._ahead is None and (job := self._jobs.next()) is not None:
            self._ahead = job
            self._log(f"{self._cluster.name}: waiting for a worker")

    def _next(self) -> Job | None:
        job, self._ahead = self._ahead, None
        return self._jobs.next() if job is None else job

    def _submitted(self, number: int, job: Job) -> Future[Any]:
        future = self._client.submit(worker.do, self._command, number, pickle.dumps(job), pure=False)
        future.add_done_callback(lambda done: self._inbox.put(("done", number, done)))
        return future

    def _tell(self) -> None:
        """After a signal: drop jobs that have not begun, tell the others to stop."""
        self._told, self._ahead = True, None
        for number in [number for number, flight in self._flights.items() if not flight.place]:
            self._flights.pop(number).future.cancel()
        self._client.run(worker.stop, self._command.name, on_error="ignore")

    def _handle(self, kind: str, number: int, *facts: Any) -> None:
        flight = self._flights.get(number)
        if flight is None:
            return
        if kind == worker.BEGAN:
            self._began(number, flight, *facts)
        elif kind == worker.ASKS:
            self._answer(number, flight, *facts)
        elif facts == (flight.future,):  # of those that were submitted for this job, the newest
            self._left(number, flight)

    def _began(self, number: int, flight: _Flight[Job], place: str, address: str) -> None:
        if address == flight.address:  # known
            return
        if flight.place:  # the scheduler has moved it
            self._lost(number, flight, f"its worker was lost ({flight.place})", moved=True)
            if number not in self._flights:
                return
        flight.place, flight.address = place, address
        self._jobs.begin(flight.job, place)

    def _answer(self, number: int, flight: _Flight[Job], address: str) -> None:
        """If the worker is lost meanwhile, the job restarts elsewhere, and asks again."""
        if address != flight.address:  # one that was taken for lost
            return
        where: dict[str, Any] = {"workers": [address], "on_error": "ignore"}
        with self._reaching():
            question = self._client.run(worker.question, self._command.name, number, **where).get(address)
        if question is not None:
            content = pickle.dumps(self._jobs.answer(flight.job, pickle.loads(question)))
            with self._reaching():
                self._client.run(worker.answer, self._command.name, number, content, **where)

    def _left(self, number: int, flight: _Flight[Job]) -> None:
        """A job has left its worker, or the scheduler has given it up."""
        with self._reaching():
            left = self._result(flight.future)
        if left is None:
            problem = flight.future.exception() if flight.future.status == "error" else None
            if problem is None or type(problem).__name__ == "KilledWorker":
                self._lost(number, flight, "its worker was lost")
            else:
                text = str(problem).strip().splitlines()
                self._end(number, Failure(": ".join([type(problem).__name__, *text[:1]])))
            return
        how, what = left
        if how == worker.DIED:
            self._died(number, flight, how_it_ended(what))
        elif how == worker.STOPPED:
            self._given_back(number, flight)
        else:
            end = pickle.loads(what)
            if isinstance(end, Failure) or self._stop.received is not None or not self._jobs.is_interrupted(end):
                self._end(number, end)
            else:
                self._given_back(number, flight)

    def _result(self, future: Future[Any]) -> tuple[str, Any] | None:
        """What :func:`fedtide.runs.jobs.cluster.worker.do` has returned, ``None`` if it is lost."""
        if future.status != "finished":
            return None
        try:
            return future.result(timeout=_FETCHING)  # type: ignore[no-any-return]
        except (TimeoutError, CancelledError):  # with its worker
            return None

    def _end(self, number: int, end: Any) -> None:
        self._jobs.finish(self._flights.pop(number).job, end)

    def _given_back(self, number: int, flight: _Flight[Job]) -> None:
        """No attempt: a worker that is told to stop is no fault of the job."""
        self._again(number, flight, f"its worker was told to stop ({flight.place or 'before it began'})")

    def _died(self, number: int, flight: _Flight[Job], reason: str) -> None:
        flight.attempt += 1
        if flight.attempt > ATTEMPTS:
            self._end(number, Failure(f"{reason}, at each of {ATTEMPTS} attempts"))
        else:
            self._again(number, flight, f"{reason} ({flight.place})")

    def _lost(self, number: int, flight: _Flight[Job], reason: str, moved: bool = False) -> None:
        flight.losses += 1
        if flight.losses > LOSSES:
            flight.future.cancel()
            self._end(number, Failure(f"job failed: {flight.losses} workers died while running it"))
        elif moved:
            self._jobs.repeat(flight.job, reason)
        else:
            self._again(number, flight, reason)

    def _again(self, number: int, flight: _Flight[Job], reason: str) -> None:
        if self._stop.received is not None:
            del self._flights[number]
            return
        self._jobs.repeat(flight.job, reason)
        flight.place = flight.address = ""
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
