"""``fedtide predict``: what the final models of a run predict for rows of a table."""

from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import Runs
from fedtide.cli.reporter import log
from fedtide.core.extras import require


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run directory, run key, or the beginning of its name.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Table of rows to predict (.csv, .csv.gz, .parquet or .feather).")
    ],
    runs: Runs = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="CSV file for the predictions. Default: print them.")] = None,
) -> None:
    """Predict rows of a table with the final models of a run: a CSV line per row.

    Where the run serves its clients models of their own, each row gets that of
    its owner, which the column `data.client` names; an owner that the run has
    never seen gets what the algorithm gives newcomers.

    FILE is written as the table of the run (delimiter, decimal sign, encoding,
    signs of missing values), and needs every column that was a feature; others
    are ignored. Values may be missing, and categories unknown. Of the run, only
    its directory is needed.

    Classification: `prediction`, and `probability_<class>` of every class.
    Regression: `prediction`, or `prediction_<target>` of several targets.
    Multilabel: `prediction_<label>`, 0 or 1, and `probability_<label>`.
    """
    require("data", "fedtide predict")
    from fedtide.core.errors import SettingsError
    from fedtide.core.storage.files import write_text
    from fedtide.records.final_model import load_model
    from fedtide.records.run_directory import read_json
    from fedtide.runs.catalog import find
    from fedtide.world.data.table import read_rows

    directory = find(runs, run)
    model = load_model(directory)
    if not file.is_file():
        raise SettingsError(f"{file}: no such file")
    if out is not None and (not out.parent.is_dir() or out.is_dir() or out.resolve() == file.resolve()):
        raise SettingsError(f"--out = {str(out)!r} should be a new file in a folder that exists")
    numeric = [each.column for each in model.encoding.columns if each.kind == "numeric"]
    rows, place = read_rows(file, (read_json(directory / "settings.json") or {}).get("data", {}), numeric)
    try:
        predictions, described = model.predict(rows, place), model.described(rows, place)
    except SettingsError as error:
        text = str(error)
        raise SettingsError(text if text.startswith(str(file)) else f"{file}: {text}") from None
    if described:
        log(f"{directory.name}: {described}")
    text = predictions.to_csv(index=False, lineterminator="\n")
    if out is None:
        print(text, end="")
    else:
        write_text(out, text)
        print(f"{out}: predictions of {len(predictions):,} rows")
