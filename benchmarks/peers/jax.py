"""Federated averaging as one JAX program: cohort, batches, local training and mean of a round are one jitted function.

Clients are trained together by ``vmap``, their steps are a ``scan``, and everything is drawn on the device that computes.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from peers.task import Arrays, Clock, Task

PACKAGES = ("jax", "jaxlib", "numpy")

Parameters: TypeAlias = list[jax.Array]


def run(task: Task, clock: Clock, variant: str) -> Arrays:
    """See ``contender.py``; variants: ``tf32``, products in TensorFloat-32 on GPUs that have it."""
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if variant == "tf32" else "float32")
    inputs, labels = (jnp.asarray(values) for values in task.data())
    parameters = [jnp.asarray(value) for value in task.initial()]

    @jax.jit
    def one_round(start: Parameters, inputs: jax.Array, labels: jax.Array, key: jax.Array) -> Parameters:
        drawn, own = jax.random.split(key)
        cohort = jax.random.choice(drawn, task.clients, (task.cohort,), replace=False)

        def train(client: jax.Array, key: jax.Array) -> Parameters:
            """The local steps of one client."""
            orders = [jax.random.permutation(each, task.samples) for each in jax.random.split(key, task.epochs)]

            def step(current: Parameters, batch: jax.Array) -> tuple[Parameters, None]:
                gradients = jax.grad(_loss)(current, inputs[client, batch], labels[client, batch])
                return [value - task.lr * change for value, change in zip(current, gradients, strict=True)], None

            return jax.lax.scan(step, start, jnp.concatenate(orders).reshape(-1, task.batch))[0]

        models = jax.vmap(train)(cohort, jax.random.split(own, task.cohort))
        return [model.mean(0) for model in models]

    key = jax.random.key(0)
    for number in range(task.rounds):
        parameters = one_round(parameters, inputs, labels, jax.random.fold_in(key, number))
        jax.block_until_ready(parameters)
        clock.tick()
    return [np.asarray(value) for value in parameters]


def _loss(parameters: Parameters, images: jax.Array, classes: jax.Array) -> jax.Array:
    """Mean cross-entropy of a batch."""
    logarithms = jax.nn.log_softmax(_logits(parameters, images))
    return -jnp.take_along_axis(logarithms, classes[:, None], axis=1).mean()


def _logits(parameters: Parameters, images: jax.Array) -> jax.Array:
    """The workloads' networks, by the shapes of their parameters: convolutions with pooling, then linear layers."""
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    values = images
    for number, (weight, bias) in enumerate(layers, 1):
        if weight.ndim == 4:
            maps = jax.lax.conv_general_dilated(
                values, weight, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
            )
            values = jax.lax.reduce_window(
                maps + bias[:, None, None], -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
            )
        else:
            values = values.reshape(len(values), -1) @ weight.T + bias
        if number < len(layers):
            values = jax.nn.relu(values)
    return values
