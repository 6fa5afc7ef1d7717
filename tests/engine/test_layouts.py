"""Layouts, forms and process settings that make a round faster and may at most change its rounding."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as sampling
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from fedtide.settings.run import EngineSettings
from fedtide.training.engine import forward
from fedtide.training.engine.executors.factory import image_layout
from fedtide.training.engine.forward import Forward
from fedtide.training.programs.narrow import use_narrow_forms
from fedtide.training.resources.workers import prepare_process
from support import closest, federation, images, run_rounds, settings, steady


def softmax_regression(w, b, x, y):
    logits = torch.addmm(b, x, w.t())
    return torch.log_softmax(logits, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1).mean()


def batched(w, b, x, y):
    logits = torch.bmm(x, w.transpose(1, 2)) + b.unsqueeze(1)
    return torch.log_softmax(logits, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1).mean()


@pytest.mark.slow
@pytest.mark.parametrize("function", [softmax_regression, batched])
@sampling(deadline=None, max_examples=8)
@given(rows=st.integers(17, 40), columns=st.integers(1, 16), inner=st.integers(1, 50))
def test_transposed_forms_give_the_same_values_and_gradients(function, rows, columns, inner):
    lead = (3,) if function is batched else ()
    draw = torch.Generator().manual_seed(rows * 10_000 + columns * 100 + inner)
    w, b, x = (
        torch.randn(*lead, *shape, generator=draw, dtype=torch.float64)
        for shape in ((columns, inner), (columns,), (rows, inner))
    )
    y = torch.randint(columns, (*lead, rows), generator=draw)
    graph = make_fx(torch.func.grad_and_value(function, (0, 1)))(w, b, x, y)
    expected = graph(w, b, x, y)
    plain = [node.target for node in graph.graph.nodes]
    use_narrow_forms(graph.graph)
    assert [node.target for node in graph.graph.nodes] != plain
    graph.recompile()
    (w_grad, b_grad), value = graph(w, b, x, y)
    (w_want, b_want), value_want = expected
    assert closest(value, value_want) < 1e-13
    assert max(closest(w_grad, w_want), closest(b_grad, b_want)) < 1e-13


@pytest.mark.parametrize("keepdim", [False, True])
def test_norms_of_few_columns_are_roots_of_sums(keepdim):
    values = torch.randn(3, 20, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def norms(x):
        return torch.linalg.vector_norm(x, dim=-1, keepdim=keepdim)

    graph = make_fx(torch.func.grad(lambda x: norms(x).sum()))(values)
    expected = graph(values)
    use_narrow_forms(graph.graph)
    assert torch.ops.aten.linalg_vector_norm.default not in [node.target for node in graph.graph.nodes]
    graph.recompile()
    assert closest(graph(values), expected) < 1e-13


def norm(order, dim):
    return lambda x: torch.linalg.vector_norm(x, order, dim)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (norm(1, -1), [(30, 10)]),
        (norm(2, 0), [(30, 10)]),
        (norm(2, -1), [(30, 17)]),
        (torch.mm, [(40, 5), (5, 17)]),
    ],
)
def test_other_norms_and_wide_results_stay_as_they_are(function, shapes):
    graph = make_fx(function)(*map(torch.randn, shapes))
    before = [node.target for node in graph.graph.nodes]
    use_narrow_forms(graph.graph)
    assert [node.target for node in graph.graph.nodes] == before


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
