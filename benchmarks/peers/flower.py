"""Flower: its FedAvg strategy in its simulation with Ray, one core per client and so two clients at a time on two cores."""

import functools
import os
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from peers.networks import network, parameters_of
from peers.task import Arrays, Clock, Task

PACKAGES = ("flwr", "ray", "torch", "numpy")


@functools.cache
def _task(folder: str) -> tuple[Task, torch.Tensor, torch.Tensor, nn.Module]:
    """Task, inputs, labels and a network, once per process; the inputs stay in the file's pages, which processes share."""
    task = Task.read(Path(folder))
    inputs, labels = task.data()
    return task, torch.from_numpy(inputs), torch.from_numpy(labels), network(task.model, task.initial())


def _train(message: Message, context: Context) -> Message:
    """What a client does with a training message."""
    task, inputs, labels, model = _task(str(message.content["config"]["folder"]))
    client = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=task.lr)
    for _ in range(task.epochs):
        for batch in torch.randperm(task.samples).split(task.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[client][batch]), labels[client][batch]).backward()
            optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": task.samples})}
    return Message(content=RecordDict(content), reply_to=message)


def run(task: Task, clock: Clock, variant: str) -> Arrays:
    """See ``contender.py``; no variants."""
    server, client = ServerApp(), ClientApp()
    client.train()(_train)
    model = network(task.model, task.initial())

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:  # Flower also calls it before the first round
            clock.tick()

    @server.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=task.cohort / task.clients,
            min_train_nodes=task.cohort,  # in the first round too, when not all nodes are connected yet
            fraction_evaluate=0.0,
            min_available_nodes=task.clients,
        )
        result = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=task.rounds,
            train_config=ConfigRecord({"folder": str(task.folder)}),
            evaluate_fn=after_round,
        )
        model.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=task.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )
    return parameters_of(model)
