"""What algorithms say: settings and data that they refuse, and advice on settings that are known to be unstable."""

from collections.abc import Callable
from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.world.dataset import Dataset
from support import federation, images, preview, settings, steady, tokens, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

MLP = {"model": {"name": "mlp", "widths": [4]}}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], Callable[[], Dataset], str]] = [
    ({"name": "apfl"}, {"model": "cnn_svhn"}, images, "algorithm apfl keeps a full model per client, but BatchNorm"),
    ({"name": "apfl"}, {"local": {"momentum": 0.9}}, vectors, "local.momentum = 0.9: algorithm apfl"),
    (
        {"name": "cfl_generative"},
        {},
        tokens,
        "cfl_generative generates synthetic samples, which is not supported for text",
    ),
    (
        {"name": "cfl_regularization", "curvature": "exact"},
        {"model": {"name": "mlp", "widths": [1000]}},
        vectors,
        "algorithm.curvature = 'exact': 9003 parameters",
    ),
    ({"name": "fedlesam", "base": "feddyn", "server_lr": 0.5}, {}, vectors, "the base feddyn has no server step size"),
    ({"name": "fedvarp", "clusters": 5}, {}, vectors, "algorithm.clusters = 5 should be at most 4"),
    ({"name": "fedwcm", "target": [0.5, 0.6]}, {}, vectors, "sum to 1"),
    ({"name": "fedwcm", "target": [-0.5, 1.5]}, {}, vectors, "sum to 1"),
    ({"name": "fedwcm", "target": []}, {}, vectors, "sum to 1"),
    (
        {"name": "fedwcm", "target": [0.5, 0.5]},
        {},
        vectors,
        "algorithm.target: 2 frequencies, but the data have 3 classes",
    ),
    (
        {"name": "fedper"},
        {},
        vectors,
        "algorithm fedper trains the last layer of a model separately; model softmax_regression has no other layers",
    ),
    (
        {"name": "fedper", "personal": "norms"},
        MLP,
        vectors,
        "algorithm.personal = norms: the model has no normalization layers",
    ),
    ({"name": "fedper", "personal": "tail"}, MLP, vectors, "algorithm.personal: the model has no parameter 'tail'"),
    (
        {"name": "fedper", "personal": "body"},
        {"model": "normed"},
        vectors,
        "algorithm.personal keeps body layers per client",
    ),
    *(({"name": "fedper", "personal": part}, MLP, vectors, "algorithm.personal") for part in ("", [], 3)),
    (
        {"name": "fedwcm_x", "momentum_norm": "nominal"},
        {},
        vectors,
        "momentum_norm and nominal_n have no effect in fedwcm_x",
    ),
]


@pytest.mark.parametrize(("algorithm", "values", "data", "message"), REFUSED)
def test_what_is_refused_is_one_line(algorithm: Any, values: Any, data: Callable[[], Dataset], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        federation(settings(algorithm=algorithm, **values), steady((5, 2, 7, 4), 1), data())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


MAIN_TEXT = {"name": "fedssg", "variant": "main_text", "alpha": 1.0}
RARE = {"participation_fraction": 0.02}
LATE = {"last_lr": 0.074}
ADVICE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(({"name": name, key: 19.9}, {}, "") for name, key in (("fedprox", "mu"), ("fedacg", "beta"), ("fedspeed", "a"))),
    ({"name": "fedprox", "mu": 0.0}, {}, ""),
    ({"name": "fedprox", "mu": 20.0}, {}, "local.lr * algorithm.mu = 2 is not below 2: the proximal step diverges"),
    ({"name": "fednova", "mu": 20.0}, {}, "local.lr * algorithm.mu"),
    ({"name": "fedacg", "beta": 20.0}, {}, "local.lr * algorithm.beta"),
    ({"name": "fedspeed", "a": 20.0}, {}, "local.lr * algorithm.a"),
    ({"name": "fedlesam", "base": "feddyn", "a": 20.0}, {}, "local.lr * algorithm.a"),
    ({"name": "feddyn", "alpha": 19.9}, {}, ""),
    ({"name": "feddyn", "alpha": 20.0}, {}, "the regularizer's step diverges"),
    ({"name": "feddyn", "alpha": 10.0}, {"smallest": 0.5}, "algorithm.alpha / omega"),
    ({"name": "feddc", "alpha": 20.0}, {}, "algorithm.alpha / omega"),
    ({"name": "feddc", "alpha": 10.0}, {"smallest": 0.5}, "algorithm.alpha / omega"),
    ({"name": "fedvra", "a": 7.0, "gamma": 0.1}, {"steps": 28}, ""),
    ({"name": "fedvra", "a": 7.0, "gamma": 0.1}, {"steps": 29}, "29 steps = 2.03 is not below 2: the dual diverges"),
    ({"name": "fedvra", "gamma": 20.0, "a": 0.0}, {}, "local.lr * algorithm.gamma"),
    ({"name": "fedvra", "d": 10.0}, {}, "algorithm.d = 10 multiplies the model by that factor every round"),
    ({"name": "fedssg"}, {}, ""),
    ({"name": "fedssg"}, LATE, "the gate approaches 2 while the learning rate is still 74% of its initial value"),
    ({"name": "fedssg", "gate": False}, LATE, ""),
    ({"name": "fedssg", "beta": 0.0}, LATE, ""),
    ({"name": "fedssg", "variant": "algorithm_1"}, LATE, ""),
    ({"name": "fedssg", "alpha": 20.0}, {}, ""),
    (MAIN_TEXT, {}, ""),
    (MAIN_TEXT, RARE, "the penalty's weight starts at alpha / (omega p) = 50"),
    (MAIN_TEXT, {"smallest": 0.3}, "the penalty's weight starts"),
    ({**MAIN_TEXT, "gate": False}, RARE, ""),
    ({**MAIN_TEXT, "penalty": False}, RARE, ""),
    ({"name": "pfedme", "lambda_": 15.0}, {}, ""),
    ({"name": "pfedme", "lambda_": 15.0}, {"lr": 0.2}, "local.lr * algorithm.lambda_"),
    ({"name": "pfedme", "lambda_": 20.0}, {"lr": 0.01}, "algorithm.personal_lr * lambda_ = 2"),
    ({"name": "per_fedavg"}, {"personalize": 0}, "so set evaluation.finetune_steps"),
    ({"name": "per_fedavg"}, {"personalize": 1}, ""),
    (
        {"name": "fedper"},
        {"fresh_starts": True},
        "fedper keeps parts of models across sessions, but sessions start from an",
    ),
    ({"name": "fedrep"}, {"fresh_starts": True}, "fedrep keeps parts of models across sessions"),
    ({"name": "fedper"}, {"fresh_starts": False}, ""),
    ({"name": "fedbabu"}, {"personalize": 0}, "the head is random until clients adapt the model"),
    ({"name": "fedbabu"}, {"personalize": 3}, ""),
]


@pytest.mark.parametrize(("chosen", "run", "fragment"), ADVICE)
def test_advice_is_one_line_or_none(chosen: dict[str, Any], run: dict[str, Any], fragment: str) -> None:
    algorithm: Any = plugins.load("algorithms", chosen["name"])(settings(algorithm=chosen).algorithm)
    lines = algorithm.advice(preview(**run))
    assert len(lines) == bool(fragment)
    assert all(fragment in line and "\n" not in line for line in lines)
