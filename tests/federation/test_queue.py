"""When jobs start, arrive and are cancelled, without anything that is trained."""

import io

import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fedtide.federation.clocks.queue import Job, Queue


def waiting(*clients: int) -> Queue:
    """A queue in which these clients wait."""
    queue = Queue()
    queue.join(clients)
    return queue


def start(queue: Queue, concurrency: int, lengths: dict[int, int], version: int = 0) -> list[int]:
    """Phase 5: who starts, each for as long as its client takes."""
    clients = queue.starting(concurrency)
    queue.start([0] * len(clients), version, [lengths[client] for client in clients])
    return clients


def arrivals(queue: Queue) -> list[int]:
    """Phase 1: clients whose jobs end now."""
    found = []
    while (job := queue.arrival()) is not None:
        found.append(job.client)
    return found


def test_a_client_that_leaves_and_returns_at_once_has_lost_its_job_and_its_place() -> None:
    queue = waiting(0, 1, 2)
    start(queue, 1, {0: 3})
    assert [job.client for job in queue.leave([0, 1])] == [0]
    queue.join([0, 1])
    assert queue.line == [2, 0, 1]


def test_a_job_takes_a_tick_at_least_and_knows_the_share_of_its_time_that_is_over() -> None:
    queue = waiting(0)
    start(queue, 1, {0: 0})
    assert next(iter(queue.running.values())).end == 1
    assert Job(0, 0, 0, 0, 4, 12).share(6) == 0.25


@examples(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    concurrency=st.integers(1, 7),
    steps=st.integers(1, 12),
    twice=st.booleans(),
)
def test_clients_have_one_job_at_a_time_and_none_is_lost(
    lengths: list[int], concurrency: int, steps: int, twice: bool
) -> None:
    """Whether or not the queue goes through a file; with all lengths doubled, everything happens at double the time."""
    queue, slow = waiting(*range(len(lengths))), waiting(*range(len(lengths)))
    by_client, doubled = dict(enumerate(lengths)), {client: 2 * length for client, length in enumerate(lengths)}
    for _ in range(steps):
        start(queue, concurrency, by_client)
        start(slow, concurrency, doubled)
        busy = [job.client for job in queue.running.values()]
        assert len(busy) == min(concurrency, len(lengths))
        assert sorted(busy + queue.line) == list(range(len(lengths)))
        assert queue.advance()
        assert slow.advance()
        assert slow.now == 2 * queue.now
        assert arrivals(queue) == arrivals(slow) != []
        if twice:
            stream = io.BytesIO()
            torch.save(queue.values(), stream)
            stream.seek(0)
            restored = Queue.restore(torch.load(stream, weights_only=True))
            assert restored == queue
            queue = restored
        queue.join([])
        slow.join([])
