"""What does not go together is refused in one line, before anything is trained."""

from dataclasses import replace
from typing import Any

import pytest

from fedtide.core.errors import SettingsError
from support import federation, images, settings, steady, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

ASYNC = {"algorithm": "fedbuff", "mode": "async"}
EVERY_STEP = {"communication": "intervals", "local": {"steps": 5}}
STOPPING = {"algorithm": {"name": "flash", "early_stop": 0.35}}
PARTS = {"algorithm": "in_parts", "model": {"name": "mlp", "widths": [6]}}
NOISY = {"name": "shrink", "noise": 0.01, "remember": True}
NO_EFFECT = "has no effect, since the compression error is always part of the next update; remove it"

REFUSED: list[tuple[dict[str, Any], str]] = [
    # the mode
    ({"mode": "async"}, "algorithm fedavg works in rounds; for mode: async use one like fedbuff"),
    ({"algorithm": "fedbuff"}, "algorithm fedbuff updates its model as results arrive and requires mode: async"),
    ({**ASYNC, "participation": {"name": "fixed", "count": 2}}, "participation fixed samples cohorts per round"),
    (
        {**ASYNC, "communication": "intervals"},
        "communication intervals averages inside rounds, but mode: async has no rounds",
    ),
    ({**ASYNC, "costs": {"wireless": False}}, "costs.wireless = false: mode: async requires simulated times; set it"),
    ({**ASYNC, "local": {"mean_epochs": 5}}, "local.mean_epochs equalizes"),
    ({**ASYNC, "local": {"momentum": 0.5, "momentum_scope": "client"}}, "momentum_scope = client keeps momentum"),
    ({**ASYNC, "evaluation": {"consistency": True}}, "evaluation.consistency = true compares"),
    ({**ASYNC, "evaluation": {"models": ["global", "all"]}}, "evaluation of the model all"),
    ({"mode": "asynch"}, "mode: unknown name 'asynch'; did you mean 'async'?"),
    ({"mode": {"name": "async", "concurrency": 0}}, "mode.concurrency = 0"),
    ({"mode": {"name": "sync", "concurrency": 3}}, "unknown key 'mode.concurrency'"),
    # the algorithm's local training
    ({**STOPPING, "local": {"steps": 5}}, "local.steps = 5: algorithm flash stops clients early after a local epoch"),
    ({**STOPPING, "local": {"epochs": 1}}, "flash stops clients early after the second local epoch at the earliest"),
    (
        {**STOPPING, "communication": "intervals", "local": {"mean_epochs": 5}},
        "inside rounds, but algorithm flash stops",
    ),
    ({**STOPPING, "mode": "async"}, "algorithm flash works in rounds"),
    (
        {**PARTS, "local": {"momentum": 0.9, "momentum_scope": "client"}},
        "local.momentum_scope = client: algorithm in_parts resets momentum at the start of each of its training phases",
    ),
    ({**PARTS, **EVERY_STEP}, "intervals averages inside rounds, but algorithm in_parts trains in phases"),
    # networks and inputs
    (
        {"model": "cnn_svhn", "engine": {"executor": "stacked"}, "on": images()},
        "engine.executor = 'stacked': the model has BatchNorm statistics",
    ),
    (
        {"local": {"crop": 4, "crop_padding": "reflect"}, "on": images(side=4)},
        "local.crop = 4: reflect padding of 4 pixels allows at most 3",
    ),
    (
        {"local": {"flip": 0.5}, "on": replace(vectors(), kind="image")},
        "local.flip = 0.5, local.crop = 0 require images",
    ),
    # links and rules
    ({"uplink": ["shrink", NOISY]}, "uplink lists shrink and shrink, which exclude each other; use one of them"),
    ({"uplink": ["shirnk"]}, "unknown name 'shirnk' in uplink; did you mean 'shrink'?"),
    ({"uplink": ["shrink"], **EVERY_STEP}, "intervals averages inside rounds, but uplink is about"),
    ({"uplink": [NOISY], **ASYNC}, "use links without client state"),
    ({"aggregation": "middel"}, "unknown name 'middel' in aggregation; did you mean 'middle'?"),
    ({"aggregation": "middle", "algorithm": "scaffold"}, "aggregation middle: algorithm scaffold adds up"),
    ({"aggregation": "middle", **ASYNC, "algorithm": {"name": "fedbuff", "buffer": 2}}, "set algorithm.buffer to 3"),
    # the downlink
    ({"downlink": "clip"}, "downlink clip is not a compressor; use one like qsgd, top_k or sign"),
    ({"downlink": {"name": "qsgd", "levels": 4}}, "error feedback can diverge; set levels >= 5 for 18 coordinates"),
    (
        {"downlink": {"name": "qsgd", "levels": 4, "error_feedback": True}},
        "downlink qsgd: the compressor is not contractive with these settings, so error feedback can diverge; set levels",
    ),
    ({"downlink": {"name": "random_k", "fraction": 0.5}}, "error feedback can diverge; set scaled to false"),
    ({"downlink": {"name": "sign", "magnitude": 0.1}}, "error feedback can diverge; remove magnitude"),
    ({"downlink": {"name": "top_k", "memory_decay": 0.5}}, f"memory_decay {NO_EFFECT}"),
    ({"downlink": {"name": "top_k", "error_feedback": False}}, f"error_feedback = false {NO_EFFECT}"),
    (
        {"downlink": "top_k", **EVERY_STEP},
        "communication intervals averages inside rounds, but downlink is about updates",
    ),
    ({"downlink": {"levels": 3}}, "downlink: should be the name of a plug-in in uplink"),
    # evaluation
    (
        {"evaluation": {"every": 2, "clients_every": 3}},
        "evaluation.clients_every = 3 must be a multiple of evaluation.every = 2",
    ),
    ({"evaluation": {"finetune_steps": 2}}, "evaluation.finetune_steps = 2 requires evaluation.clients_every > 0"),
    (
        {"evaluation": {"clients_every": 1, "finetune_part": "head"}},
        "evaluation.finetune_part = head requires evaluation.finetune_steps > 0",
    ),
    ({"evaluation": {"client_samples": 3}}, "evaluation.client_samples = 3 requires evaluation.clients_every > 0"),
    (
        {"evaluation": {"relearn_epochs": 3, "erased": False}},
        "evaluation.relearn_epochs = 3 requires evaluation.erased: true",
    ),
    (
        {"evaluation": {"departed_clients": "last_model"}},
        "evaluation.departed_clients = last_model requires evaluation.clients_every > 0",
    ),
]


@pytest.mark.parametrize(("values", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_what_does_not_go_together_is_refused_in_one_line(values: dict[str, Any], line: str) -> None:
    chosen = {name: value for name, value in values.items() if name != "on"}
    with pytest.raises(SettingsError) as caught:
        federation(settings(**chosen), steady((5, 2, 7, 4, 6), 2), values.get("on", vectors()))
    (found,) = str(caught.value).splitlines()
    assert line in found
