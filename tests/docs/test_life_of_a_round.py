"""FedAvg in NumPy of docs/life_of_a_round.md gives the model of the same run."""

import re
from typing import Any

import numpy as np
import torch
from printed_commands import ROOT

from fedtide.training.engine.plan import plan_batches
from support import deal, federation, run_rounds, settings, steady, vectors

PAGE = (ROOT / "docs" / "life_of_a_round.md").read_text(encoding="utf-8")
SIZES, ROUNDS, LR = (7, 12, 5), 4, 0.3


def test_fedavg_in_fifteen_lines_is_fedavg() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert len(code.partition("def fedavg")[2].strip().splitlines()) <= 1 + 15
    space: dict[str, Any] = {}
    exec(code, space)
    data = vectors()
    chosen = settings(algorithm="fedavg", local={"steps": 6, "batch_size": 4, "lr": LR})
    fed = federation(chosen, steady(SIZES, ROUNDS), data)
    shards = deal(SIZES)

    def batches(t: int, k: int) -> list[Any]:
        """The indices of the run's own batches."""
        made = plan_batches(
            [shards[k]], [k], fed.parts.settings.local, float(np.mean(SIZES)), chosen.seed, "batches", (t,),
            torch.device("cpu"), data.classes,
        )  # fmt: skip
        return [np.searchsorted(shards[k], batch.numpy()) for batch in torch.split(*made.of(0))]

    layout, w0, b0 = fed.parts.layout, fed.parts.w0, fed.parts.b0
    start = {name: value.numpy() for name, value in layout.named(w0, b0).items()}
    weight, bias = (next(value for name, value in start.items() if name.endswith(end)) for end in ("weight", "bias"))
    x, y = data.train_inputs.double().flatten(1).numpy(), data.train_labels.numpy()
    W, b = space["fedavg"](weight, bias, x, y, shards, batches, ROUNDS, LR)
    state, _ = run_rounds(fed)
    end = {name: value.numpy() for name, value in layout.named(state.w, state.b).items()}
    for name, expected in (("weight", W), ("bias", b)):
        found = next(value for key, value in end.items() if key.endswith(name))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
