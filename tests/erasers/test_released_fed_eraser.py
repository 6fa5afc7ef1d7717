"""FedEraser as released starts from the first kept round that has other clients, and is refused where there is none."""

import pytest
import torch
from erased_runs import BARE, SIZES, asked, made, request, world

from fedtide.core.errors import SettingsError
from support import closest, run_rounds, watch

RELEASED = {"variant": "release", "interval": 2}
"""Of rounds 0, 1, ... it keeps 1, 3, ..."""


@pytest.mark.parametrize(("at", "values"), [(2, {"interval": 5}), (4, {"interval": 2})])
def test_it_is_refused_where_no_kept_round_has_other_clients(at: int, values: dict[str, int]) -> None:
    there = world([(0, 1), (1,), (0, 1), (1,), (0, 2), (0, 2)])
    asks = request("fed_eraser", at=at, **{**RELEASED, **values})
    with pytest.raises(
        SettingsError, match=rf"^erase fed_eraser: variant: release .* before round {at}; use a smaller"
    ):
        made([asks], there)
    made([{**asks, "variant": "text"}], there)


def test_a_kept_round_of_erased_clients_alone_is_left_out() -> None:
    cohorts, asks = [[0, 1], [1], [0, 2], [0, 1, 2], [0, 2], [0, 2]], request("fed_eraser", at=4, **RELEASED)
    fed = made([asks], world(), cohorts, evaluation=BARE)
    rounds = watch(fed)
    run_rounds(fed, 4)
    last, sizes = rounds[3][0].trained.W, torch.tensor([SIZES[0], SIZES[2]], dtype=torch.float64)
    _, state, _ = asked(asks, world(), cohorts, evaluation=BARE)
    assert closest(state.w, (sizes / sizes.sum()) @ last[[0, 2]]) < 1e-14
