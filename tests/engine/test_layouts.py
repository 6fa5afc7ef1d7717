"""Layouts, forms and process settings that make a round faster and may at most change its rounding."""

import pytest
import torch

from fedtide.settings.run import EngineSettings
from fedtide.training.engine import forward
from fedtide.training.engine.executors.factory import image_layout
from fedtide.training.engine.forward import Forward
from fedtide.training.resources.workers import prepare_process
from support import closest, federation, images, run_rounds, settings, steady


def test_the_layout_follows_the_model_unless_it_is_asked_for():
    cpu, auto = torch.device("cpu"), EngineSettings()
    assert image_layout(auto, True, cpu) == torch.channels_last
    assert image_layout(auto, False, cpu) == torch.contiguous_format
    assert image_layout(auto, True, torch.device("cuda")) == torch.contiguous_format
    assert image_layout(EngineSettings(executor="stacked"), True, cpu) == torch.contiguous_format
    assert image_layout(EngineSettings(layout="channels_last"), False, cpu) == torch.channels_last
    assert image_layout(EngineSettings(layout="contiguous"), True, cpu) == torch.contiguous_format


def test_the_process_is_prepared():
    cpu = torch.device("cpu")
    assert "one torch thread" in prepare_process(EngineSettings(), cpu)
    assert torch.get_num_threads() == 1
    assert "memory" not in prepare_process(EngineSettings(allocator="default"), cpu)


def test_convolutions_on_a_card_are_in_full_precision_and_in_one_order():
    with torch.backends.cudnn.flags(allow_tf32=True, deterministic=False):
        assert prepare_process(EngineSettings(), torch.device("cuda")).startswith("cuda")
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.allow_tf32


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lenet", "cnn_svhn"])
def test_channels_last_changes_training_and_evaluation_by_rounding_alone(model):
    ends = []
    for layout in ("contiguous", "channels_last"):
        chosen = settings(model=model, engine={"layout": layout, "workers": 1}, local={"flip": 0.5, "crop": 1})
        fed = federation(chosen, steady((4, 5), 2), images(side=16))
        state, records = run_rounds(fed)
        ends.append((state.w, [record.row["test_loss"] for record in records]))
    (one, losses), (other, again) = ends
    assert closest(one, other) < 1e-10
    assert losses == pytest.approx(again, abs=1e-10)


@pytest.mark.parametrize("model", ["softmax_regression", "lenet", "cnn_svhn"])
def test_the_traced_forward_pass_is_the_network_in_evaluation_mode(model):
    fed = federation(settings(model=model), steady((4, 5), 1), images(side=16))
    traced, network = Forward(fed.parts.task), fed.parts.task.network.double().eval()
    w, b = fed.parts.w0 * 1.5, fed.parts.b0 * 1.25 + 0.01
    with torch.no_grad():
        for name, value in {**dict(network.named_parameters()), **dict(network.named_buffers())}.items():
            if value.is_floating_point():
                value.copy_(fed.parts.layout.named(w, b)[name])
        for batch in (20, 7, 20):
            inputs = fed.parts.data.test_inputs[:batch]
            with torch.inference_mode():
                logits = traced(w, b, inputs)
            assert closest(logits, network(inputs)) < 1e-12


@pytest.mark.slow
def test_evaluation_in_parts_gives_the_logits_of_whole_batches(monkeypatch):
    fed = federation(settings(model="cnn_5x5"), steady((4, 5), 1), images(side=16))
    task, (w, b) = fed.parts.task, (fed.parts.w0, fed.parts.b0)
    inputs = fed.parts.data.test_inputs[:23]
    whole = Forward(task)(w, b, inputs)
    widest = 64 * 12 * 12 * whole.itemsize  # the first convolution's outputs
    for images_at_once in (1, 7, 22):
        monkeypatch.setattr(forward, "_LARGEST", images_at_once * widest)
        assert closest(Forward(task)(w, b, inputs), whole) < 1e-12
