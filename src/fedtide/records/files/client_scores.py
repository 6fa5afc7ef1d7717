"""The table of client scores: one Parquet file per evaluation of the clients, complete or not named by any mark."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = "client_scores"

GAINS = {
    "served": ("personalization_gain", "fraction_worse_than_global"),
    "finetuned": ("finetuning_gain", "finetuning_fraction_worse"),
}
"""Columns of what clients gain over the global model by the model that each is served, and by fine-tuning it."""


def file_name(round_: int) -> str:
    """Name of the file of a round, inside the run directory."""
    return f"{FOLDER}/round-{round_:06d}.parquet"


def file_names(run: Path) -> list[str]:
    """Names of all files of a run that are not empty, by ascending round."""
    found = (run / FOLDER).glob("round-*.parquet")
    return sorted(f"{FOLDER}/{path.name}" for path in found if path.stat().st_size)


def encoded(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Columns as the content of a Parquet file; ``None`` is an empty cell."""
    import pandas as pd  # takes long to import, and is needed only here

    types = {"round": "int64", "client": "int64", "samples": "Int64", "name": "string", "group": "string"}
    stream = io.BytesIO()
    frame = pd.DataFrame(columns).astype({name: types.get(name, "float64") for name in columns})
    frame.to_parquet(stream, engine="pyarrow", index=False)
    return stream.getvalue()
