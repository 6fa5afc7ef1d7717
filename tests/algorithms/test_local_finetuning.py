"""Local fine-tuning: clients are served the model that they trained last."""

import torch

from fedtide.federation.scoring.served import ServedModels
from support import closest, federation, run_rounds, settings, steady, trajectory, vectors

SIZES = (5, 2, 7, 4)
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2}


def test_a_client_is_served_what_it_trained_last_and_the_global_model_before() -> None:
    """Of cohorts of one client the global model is that client's."""
    cohorts = [[0], [1], [0], [2]]
    path, _ = trajectory("fedavg", steady(SIZES, 4), vectors(), cohorts=cohorts, local=LOCAL)
    fed = federation(settings(algorithm="local_finetuning", local=LOCAL), steady(SIZES, 4), vectors(), cohorts=cohorts)
    state, _ = run_rounds(fed)
    served = ServedModels(fed.parts).rows(state, 3, slice(None))[0]
    after = [torch.as_tensor(w) for w in path]
    for client, last in ((0, 2), (1, 1), (2, 3), (3, 3)):  # client 3 is never drawn
        assert torch.equal(served[client], after[last])
    assert closest(after[1], after[3]) > 1e-3
