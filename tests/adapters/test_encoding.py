"""The encoding of a table: what it learns, that storing it loses nothing, and that types of a frame do not matter."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.settings.params import parse
from fedtide.world.adapters.encoding import Encoding

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64).filter(lambda x: abs(x) < 1e150)


def fitted(frame: pd.DataFrame, numeric: list[str], categorical: list[str], rows: Any = None) -> Encoding:
    return Encoding.fit(frame, numeric, categorical, rows, outputs=["no", "yes"])


def stored(encoding: Encoding) -> Encoding:
    found = parse(Encoding, json.loads(json.dumps(encoding.model_dump(mode="json"))), "encoding.json")
    assert isinstance(found, Encoding)
    return found


def test_missing_and_unknown_values_have_a_code() -> None:
    frame = pd.DataFrame({"x": [1.0, 3.0, np.nan, 5.0], "c": ["a", None, "b", "new"]})
    encoding = fitted(frame, ["x"], ["c"], np.array([True, True, True, False]))
    assert encoding.features == ("x", "x is missing", "c is a", "c is b", "c is missing")
    assert encoding.apply(frame).tolist() == [[-1, 0, 1, 0, 0], [1, 0, 0, 0, 1], [0, 1, 0, 1, 0], [3, 0, 0, 0, 0]]


@given(st.lists(st.integers(-(10**9), 10**9).map(lambda n: n / 1000), min_size=2, max_size=30))
@example([699051.5953692335] * 3)  # whose mean is another number
@example([1e-170, 2e-170])  # whose deviation is 0
def test_learned_rows_are_standardized(values: list[float]) -> None:
    frame = pd.DataFrame({"x": values})
    features = fitted(frame, ["x"], []).apply(frame)
    assert abs(float(features.mean())) < 1e-3
    assert np.std(values) < 1e-3 or abs(float(features.std(correction=0)) - 1) < 1e-3


@given(st.lists(st.tuples(NUMBERS | st.none(), st.text(max_size=4) | st.none()), min_size=1, max_size=20))
@pytest.mark.slow
def test_storing_it_loses_nothing(values: list[tuple[float | None, str | None]]) -> None:
    frame = pd.DataFrame(values, columns=["x", "c"]).astype({"x": float, "c": object})
    encoding = fitted(frame, ["x"], ["c"])
    again = stored(encoding)
    assert again == encoding
    assert torch.equal(again.apply(frame), encoding.apply(frame))


@given(st.permutations(["x", "k", "c", "other"]), st.permutations(range(6)))
def test_rows_and_columns_in_any_order_are_the_same(columns: list[str], order: list[int]) -> None:
    frame = pd.DataFrame({"x": [1, 2, None, 4, 5, 6.5], "k": [7, 8, 9, 7, 8, 9], "c": [*"abcab", None], "other": 0})
    encoding = fitted(frame, ["x"], ["k", "c"])
    assert torch.equal(encoding.apply(frame[columns].iloc[list(order)]), encoding.apply(frame)[list(order)])


@pytest.mark.parametrize(
    ("learned", "given"),
    [
        ([7, 8, 10], [7.0, 8.0, 10.0]),
        ([7.0, None, 10.0], [7, 10, 7]),
        (["07", "8", "A1"], [7, 8, 7]),
        ([7, 8, 2**53 + 1], ["7", "8.0", str(2**53 + 1)]),
        ([True, False, True], ["true", "False", "TRUE"]),
        ([True, None, False], [True, False, True]),
        ([0.5, -0.0, 1e3], ["0.50", "0", "1000"]),
    ],
)
def test_a_category_is_the_same_in_every_type(learned: list[Any], given: list[Any]) -> None:
    """Readers guess types from the rows that they see, which are others in every file."""
    encoding = fitted(pd.DataFrame({"k": learned}), [], ["k"])
    for values in (pd.Series(given), pd.Series(given, dtype=object), pd.Series([str(value) for value in given])):
        features = encoding.apply(pd.DataFrame({"k": values}))
        assert features.sum(1).tolist() == [1.0] * len(given)
        assert features.argmax(1).unique().numel() == len({str(value).lower() for value in given})


def test_numbers_may_be_texts_and_truth_values() -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0, 1.0, 0.0]})
    encoding = fitted(frame, ["x"], [])
    for values in ([False, True, True, False], ["0", "1.0", "1e0", "-0"], [0, 1, 1, 0]):
        assert torch.equal(encoding.apply(pd.DataFrame({"x": values})), encoding.apply(frame))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"x": [1.0]}, r"^no column 'color' \(known: x\)$"),
        ({"x": [1.0], "colour": ["a"]}, r"^no column 'color'; did you mean 'colour'\? \(known: colour, x\)$"),
        ({"x": [1.0, "big"], "color": ["a", "a"]}, r"^row 2: x is 'big', expected a number$"),
        ({"x": [1e60], "color": ["a"]}, r"^row 1: x is '1e\+60', expected a number nearer to the mean of the"),
    ],
)
def test_rows_that_cannot_be_are_one_line(frame: dict[str, Any], message: str) -> None:
    encoding = fitted(pd.DataFrame({"x": [1.0, 2.0], "color": ["a", "b"]}), ["x"], ["color"])
    with pytest.raises(SettingsError, match=message):
        encoding.apply(pd.DataFrame(frame))


def test_outputs_become_named_predictions() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    logits = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    one = Encoding.fit(frame, ["x"], [], outputs=["no", "yes"])
    found = one.predictions(logits)
    assert list(found) == list(one.predicted) == ["prediction", "probability_no", "probability_yes"]
    assert found["prediction"].tolist() == ["yes", "no"]
    assert np.array_equal(found.iloc[:, 1:].to_numpy(), logits.double().softmax(1).numpy())
    several = Encoding.fit(frame, ["x"], [], outputs=["a", "b"], task="multilabel").predictions(logits - 1)
    assert list(several) == ["prediction_a", "prediction_b", "probability_a", "probability_b"]
    assert several.iloc[:, :2].to_numpy().tolist() == [[0, 1], [1, 0]]
    assert np.array_equal(several.iloc[:, 2:].to_numpy(), (logits - 1).double().sigmoid().numpy())
    number = Encoding.fit(frame, ["x"], [], outputs=["minutes"], task="regression", scale=10)
    assert number.predictions(logits[:, 1:]).to_dict("list") == {"prediction": [20.0, 10.0]}
    two = Encoding.fit(frame, ["x"], [], outputs=["a", "b"], task="regression", scale=10)
    assert two.predictions(logits).to_dict("list") == {"prediction_a": [0.0, 30.0], "prediction_b": [20.0, 10.0]}


def test_nobodys_rows_are_encoded() -> None:
    frame = pd.DataFrame({"x": [1.0, 3.0, None], "c": [None, "a", "b"], "k": [3, 4, 5]})
    encoding = fitted(frame, ["x"], ["c", "k"])
    assert encoding.apply(encoding.example()).tolist() == [[0, 0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0, 0, 0]]
