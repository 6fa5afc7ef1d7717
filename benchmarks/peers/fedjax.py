"""FedJAX: its federated_averaging with the jit backend, its default; XLA uses both cores within an operation."""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from peers.task import Arrays, Clock, Task

PACKAGES = ("fedjax", "jax", "jaxlib", "dm-haiku", "numpy")


def _forward(model: str, inputs: jax.Array) -> jax.Array:
    """The network; images have their channels last, as Haiku prefers."""
    layers = {
        "softmax_regression": lambda: [hk.Flatten(), hk.Linear(10)],
        "mlp": lambda: [hk.Flatten(), hk.Linear(200), jax.nn.relu, hk.Linear(200), jax.nn.relu, hk.Linear(10)],
        "cnn_5x5": lambda: [
            *(hk.Conv2D(64, 5, padding="VALID"), hk.MaxPool(2, 2, "VALID", channel_axis=-1), jax.nn.relu),
            *(hk.Conv2D(64, 5, padding="VALID"), hk.MaxPool(2, 2, "VALID", channel_axis=-1), jax.nn.relu),
            *(hk.Flatten(), hk.Linear(384), jax.nn.relu, hk.Linear(192), jax.nn.relu, hk.Linear(10)),
        ],
    }[model]()
    logits: jax.Array = hk.Sequential(layers)(inputs)
    return logits


def run(task: Task, clock: Clock, variant: str) -> Arrays:
    """See ``contender.py``; no variants."""
    inputs, labels = task.data()
    images = np.ascontiguousarray(np.moveaxis(inputs, 2, -1))
    data = fedjax.InMemoryFederatedData(
        {f"{client:04d}".encode(): {"x": images[client], "y": labels[client]} for client in range(task.clients)}
    )
    network = hk.transform(lambda batch: _forward(task.model, batch))
    shapes = jax.eval_shape(network.init, jax.random.PRNGKey(0), images[0, :1])

    def loss(params: hk.Params, batch: fedjax.BatchExample, key: jax.Array) -> jax.Array:
        chosen = jax.nn.log_softmax(network.apply(params, key, batch["x"]))
        return -jnp.take_along_axis(chosen, batch["y"][:, None], axis=1)[:, 0]

    fedjax.set_for_each_client_backend("jit")
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(task.lr),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch, num_epochs=task.epochs),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, task.cohort, seed=0)
    state = algorithm.init(_from_torch(task.initial(), shapes))
    for _ in range(task.rounds):
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        clock.tick()
    return _to_torch(state.params)


def _from_torch(arrays: Arrays, shapes: hk.Params) -> hk.Params:
    """Haiku's parameters from PyTorch's: weights [.., in, out] instead of [out, in, ..], pixels flattened channels last."""
    pairs, channels, params = zip(arrays[::2], arrays[1::2], strict=True), 1, {}
    for name, (weight, bias) in zip(shapes, pairs, strict=True):
        if weight.ndim == 4:
            weight, channels = weight.transpose(2, 3, 1, 0), len(weight)
        else:
            weight = weight.reshape(len(weight), channels, -1).transpose(2, 1, 0).reshape(-1, len(weight))
            channels = 1
        params[name] = {"w": jnp.asarray(weight), "b": jnp.asarray(bias)}
    return params


def _to_torch(params: hk.Params) -> Arrays:
    """The way back."""
    arrays, channels = [], 1
    for layer in params.values():
        weight, bias = np.asarray(layer["w"]), np.asarray(layer["b"])
        if weight.ndim == 4:
            weight, channels = weight.transpose(3, 2, 0, 1), len(bias)
        else:
            weight = weight.reshape(-1, channels, len(bias)).transpose(2, 1, 0).reshape(len(bias), -1)
            channels = 1
        arrays += [weight, bias]
    return arrays
