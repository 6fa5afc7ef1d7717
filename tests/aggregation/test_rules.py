"""Aggregation rules on rows: identities, symmetries, bounds, and rows that are far away or no numbers."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.methods.aggregation.base import Combined, Rule
from fedtide.settings.params import Params
from fedtide.training.engine.flat import weighted_sum
from support import closest

RULES: dict[str, dict[str, Any]] = {
    "median": {"name": "median"},
    "trimmed": {"name": "trimmed_mean", "trim": 0.2},
    "krum": {"name": "krum", "f": 1},
    "multi-krum": {"name": "krum", "f": 1, "keep": None},
    "geometric": {"name": "geometric_median"},
    "centered": {"name": "centered_clipping", "radius": 0.7, "iterations": 2},
}
BY_SEED = given(st.integers(0, 10**6), st.integers(3, 9), st.integers(1, 6))
FEW = hypothesis_settings(max_examples=15, deadline=None)


def rule(name: str, **values: Any) -> Rule:
    cls: Any = plugins.load("aggregation", name)
    made: Rule = cls(cls.Settings(name=name, **values))
    return made


def rows(seed: int, n: int, d: int) -> tuple[Tensor, Tensor]:
    """Rows [n, d], and weights."""
    rng = np.random.default_rng(seed)
    p = torch.from_numpy(rng.uniform(0.5, 2.0, n))
    return torch.from_numpy(rng.normal(size=(n, d))), p / p.sum()


def over(made: Rule, D: Tensor, p: Tensor, extra: dict[str, Tensor] | None = None, seed: int = 0) -> Combined:
    return made.over(D, p, made.extra(D[0]) if extra is None else extra, generator(seed, "test"))


def likewise(first: Combined, second: Combined, tolerance: float = 1e-11) -> bool:
    return closest(first.update, second.update) < tolerance and closest(first.kept, second.kept) < tolerance


each_rule = pytest.mark.parametrize("values", RULES.values(), ids=RULES)


@each_rule
@BY_SEED
@FEW
def test_equal_updates_are_the_result(values: dict[str, Any], seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n, d)
    wide = {"radius": 100.0} if values["name"] == "centered_clipping" else {}
    assert closest(over(rule(**values | wide), D[:1].expand(n, d), p).update, D[0]) < 1e-12


@each_rule
@BY_SEED
@FEW
def test_the_order_of_participants_does_not_matter(values: dict[str, Any], seed: int, n: int, d: int) -> None:
    (D, p), order = rows(seed, n, d), torch.from_numpy(np.random.default_rng(seed).permutation(n))
    if values["name"] == "krum":  # with two other rows and less, scores tie, and the lower id is kept
        n, d = max(n, 6), max(d, 2)
        (D, p), order = rows(seed, n, d), torch.from_numpy(np.random.default_rng(seed).permutation(n))
    found, other = over(rule(**values), D, p), over(rule(**values), D[order], p[order])
    assert likewise(Combined(found.update, found.kept[order]), other)


@each_rule
@BY_SEED
@FEW
def test_a_shift_of_all_updates_and_the_center_shifts_the_result(
    values: dict[str, Any], seed: int, n: int, d: int
) -> None:
    D, p = rows(seed, n, d)
    by, made = torch.linspace(-3, 2, d, dtype=torch.float64), rule(**values)
    center = {"center": by.clone()} if made.extra(D[0]) else None
    found, shifted = over(made, D, p), over(made, D + by, p, center)
    if values["name"] == "krum" and n < 6:
        return
    assert likewise(Combined(found.update + by, found.kept), shifted)


@pytest.mark.parametrize("name", [name for name in RULES if name != "centered"])
@BY_SEED
@FEW
def test_a_scale_of_all_updates_scales_the_result(name: str, seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n, d)
    found, floor = over(rule(**RULES[name]), D, p), {"floor": 4e-5} if name == "geometric" else {}
    scaled = over(rule(**RULES[name], **floor), 4 * D, p)  # a power of two: nothing is rounded
    assert torch.equal(4 * found.update, scaled.update)
    assert torch.equal(found.kept, scaled.kept)


@pytest.mark.parametrize(
    "values",
    [
        {"name": "trimmed_mean", "trim": 0.0},
        {"name": "krum", "f": 0, "keep": 9},
        {"name": "centered_clipping", "radius": 1e300},
        {"name": "geometric_median", "iterations": 1, "floor": 1e6},
        *({**values, "bucket": 9} for values in RULES.values() if values["name"] != "centered_clipping"),
    ],
    ids=lambda values: "-".join(map(str, values.values())),
)
@BY_SEED
@FEW
def test_with_these_settings_it_is_the_mean(values: dict[str, Any], seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n, d)
    assert likewise(over(rule(**values), D, p), Combined(weighted_sum(p, D), torch.ones_like(p)))


@BY_SEED
@FEW
def test_the_most_that_can_be_trimmed_leaves_the_median(seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n, d)
    found = over(rule("trimmed_mean", trim=(n - 1) / (2 * n)), D, p)
    assert likewise(found, over(rule("median"), D, p))
    assert closest(found.update, torch.quantile(D, 0.5, dim=0)) < 1e-15
    assert float(found.kept.mean()) == pytest.approx((2 - n % 2) / n)


@pytest.mark.parametrize("name", ["median", "trimmed", "krum", "multi-krum"])
@pytest.mark.parametrize("n", range(1, 10))
def test_so_many_attackers_do_not_carry_the_result_away(name: str, n: int) -> None:
    made, (D, p) = rule(**RULES[name]), rows(n, n, 4)
    assert 0 <= made.withstands(n) < max(1, n / 2)
    D[: made.withstands(n)] = 1e6
    assert float(over(made, D, p).update.abs().max()) < 10


@BY_SEED
@FEW
def test_equal_values_share_their_places_equally(seed: int, n: int, d: int) -> None:
    """As colluding attackers have them, or zeros of sparse updates: the mean over rows is what it is without ties."""
    D = torch.from_numpy(generator(seed, "ties").integers(-1, 2, (n, d))).to(torch.float64)
    for cut in range(1, (n + 1) // 2):
        wanted = torch.zeros(n, dtype=torch.float64)
        for column in D.T:
            between = column.sort().values[cut : n - cut]
            wanted += torch.stack([(between == value).sum().double() / (column == value).sum() for value in column])
        found = over(rule("trimmed_mean", trim=cut / n), D, torch.full((n,), 1 / n, dtype=torch.float64))
        assert closest(found.kept, wanted / d) < 1e-12
        assert float(found.kept.mean()) == pytest.approx(1 - 2 * cut / n)


@BY_SEED
@FEW
def test_as_many_are_cut_off_as_the_share_says(seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n, d)
    for cut in range((n + 1) // 2):
        found = over(rule("trimmed_mean", trim=cut / n), D, p)
        wanted = p @ D if cut == 0 else D.sort(0).values[cut : n - cut].mean(0)
        assert closest(found.update, wanted) < 1e-14
        assert float(found.kept.mean()) == pytest.approx(1 - 2 * cut / n)


@BY_SEED
@FEW
def test_krum_by_hand(seed: int, n: int, d: int) -> None:
    """Lists and loops; f of the settings is too much for fewer than 2 f + 3 rows."""
    D, p = rows(seed, n, d)
    for f, keep in itertools.product((0, 1, 2), (1, 2, None)):
        close = n - min(f, (n - 3) // 2) - 2
        scores = []
        for one in D:
            others = sorted(float(((one - other) ** 2).sum()) for other in D)[1:]
            scores.append(sum(others[:close]))
        best = sorted(range(n), key=lambda row: (round(scores[row], 12), row))[: keep or close]
        found = over(rule("krum", f=f, keep=keep), D, p)
        assert found.kept.nonzero()[:, 0].tolist() == sorted(best)
        assert closest(found.update, (p[best] / p[best].sum()) @ D[best]) < 1e-12


def test_of_rows_that_tie_krum_keeps_the_first() -> None:
    D = torch.tensor([[9.0, 0.0], [0.0, 1.0], [0.0, 0.0], [-8.0, 3.0]], dtype=torch.float64)
    assert over(rule("krum", f=1), D, torch.full((4,), 0.25, dtype=torch.float64)).kept.tolist() == [0, 1, 0, 0]


@BY_SEED
@FEW
def test_a_center_moves_by_its_radius_at_most_and_is_where_the_next_round_begins(seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n, d)
    made, last = rule("centered_clipping", radius=0.2, iterations=3), torch.zeros(d, dtype=torch.float64)
    extra = made.extra(D[0])
    for _ in range(3):
        v = over(made, 100 * D, p, extra).update
        assert float((v - last).norm()) <= 3 * 0.2 + 1e-12
        assert torch.equal(extra["center"], v)
        last = v
    zero = rule("centered_clipping", radius=0.2, iterations=3, center="zero")
    assert zero.extra(D[0]) == {}
    assert float(over(zero, 100 * D, p).update.norm()) <= 3 * 0.2 + 1e-12


@each_rule
def test_one_update_far_away_hardly_counts(values: dict[str, Any]) -> None:
    D, p = rows(0, 9, 5)
    D[4] *= 1e4
    found = over(rule(**values), D, p)
    assert float(found.update.norm()) < 5
    assert float(found.kept[4]) < 0.01 + 2 / 9 * (values["name"] == "median")
    assert float(over(rule("mean"), D, p).update.norm()) > 1e3


@each_rule
@BY_SEED
@FEW
def test_updates_that_are_no_numbers_are_absent(values: dict[str, Any], seed: int, n: int, d: int) -> None:
    D, p = rows(seed, n + 3, d)
    D[0, 0], D[2], D[-1, -1] = torch.nan, torch.inf, -torch.inf
    here = torch.ones(n + 3, dtype=torch.bool)
    here[[0, 2, -1]] = False
    found, without = over(rule(**values), D, p), over(rule(**values), D[here], p[here] / p[here].sum())
    assert likewise(Combined(found.update, found.kept[here]), without)
    assert not bool(found.kept[~here].any())
    nobody = over(rule(**values), torch.full_like(D, torch.nan), p)
    assert not bool(nobody.update.any())
    assert not bool(nobody.kept.any())


def test_finite_updates_whose_sum_is_not_are_there() -> None:
    D = torch.tensor([[3e38, 3e38], [1.0, 2.0], [1.0, 2.0]])
    assert over(rule("median"), D, torch.full((3,), 1 / 3)).update.tolist() == [1.0, 2.0]


@each_rule
@BY_SEED
@FEW
def test_buckets_are_dealt_anew_and_count_as_one(values: dict[str, Any], seed: int, n: int, d: int) -> None:
    """The rule of weighted means of consecutive rows of a permutation; each participant is kept as its bucket."""
    D, p = rows(seed, n + 3, d)
    made = rule(**values, bucket=2)
    order = generator(seed, "test").permutation(n + 3).tolist()
    groups = [order[first : first + 2] for first in range(0, n + 3, 2)]
    means = torch.stack([p[group] @ D[group] / p[group].sum() for group in groups])
    alone = over(rule(**values), means, torch.stack([p[group].sum() for group in groups]))
    kept = torch.zeros_like(p)
    for group, share in zip(groups, alone.kept, strict=True):
        kept[group] = share
    assert likewise(over(made, D, p, seed=seed), Combined(alone.update, kept))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "krum"}, "f"),
        ({"name": "mean", "bucket": 2}, "aggregation.bucket = 2: should be null"),
    ],
)
def test_settings_that_make_no_rule_are_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Params({"aggregation": values}).run()
    assert "aggregation" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
