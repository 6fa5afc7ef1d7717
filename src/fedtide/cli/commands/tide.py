"""``fedtide tide``: the suite Tide-2."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import ClusterOption, DryRun, Json, Quiet, with_cluster
from fedtide.cli.reporter import log, print_table, progress
from fedtide.core.discovery.shipped import TIDE as FOLDER
from fedtide.core.extras import require

tide = typer.Typer(
    name="tide",
    no_args_is_help=True,
    help="Evaluate methods on a fixed suite of scenarios with changing client populations, and build the leaderboard.",
)

Worlds = Annotated[
    list[str] | None, typer.Option("--world", help="Run only this scenario of the suite; may be repeated.")
]
Suite = Annotated[Path, typer.Option("--suite", help="Folder of another suite. Default: Tide-2.", show_default=False)]


@tide.command()
def run(
    methods: Annotated[list[str], typer.Argument(help="Method files, methods of the suite, or algorithm names.")],
    out: Annotated[Path, typer.Option(help="Output folder, with one subfolder per method.")] = Path("tide"),
    worlds: Worlds = None,
    suite: Suite = FOLDER,
    workers: Annotated[int, typer.Option(min=0, help="Number of concurrent runs; 0 for one per core.")] = 0,
    cluster: ClusterOption = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Search and run methods in all worlds. Finished runs are reused, interrupted ones continue."""
    require("tune", "fedtide tide run")
    from fedtide.runs.workspace import Workspace
    from fedtide.settings.params import Params
    from fedtide.studies.tide.campaign import BEST, RUNS, SEARCH, run_method
    from fedtide.studies.tide.method import Method
    from fedtide.studies.tide.suite import chosen_worlds
    from fedtide.studies.tuning.study import planned_runs

    chosen, members = chosen_worlds(worlds, suite), [Method.of(given, suite) for given in methods]
    settings = [f"compare.workers={workers}", f"tune.workers={workers}", *with_cluster(None, cluster)]
    plans = {(method.name, world.name): method.params(world, settings) for method in members for world in chosen}
    for names, params in plans.items() if dry_run else ():
        from fedtide.runs.dry_run import dry_run as planned

        home = out.joinpath(*names)
        search = planned_runs(params, home / SEARCH, home / SEARCH / RUNS, log)
        best = home / SEARCH / BEST
        grid = (Params.read(best) if best.is_file() else params).grid()
        print(f"{', '.join(names)}: {planned(grid, Workspace(home / RUNS), workers, *search)}")
    if dry_run:
        return
    outcomes = []
    with progress(quiet) as watch:
        for method in members:
            outcomes += run_method(method, chosen, out, watch, settings)
            if outcomes[-1].stopped is not None:
                log("Interrupted. Re-run the same command to resume.")
                raise typer.Exit(128 + outcomes[-1].stopped)
    print(f"{out}: {', '.join(method.name for method in members)}; next: fedtide tide verify {out}")
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(1)


@tide.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of one method, or folder of several method folders.")] = Path(
        "tide"
    ),
    worlds: Worlds = None,
    suite: Suite = FOLDER,
    as_json: Json = False,
) -> None:
    """Check that run directories are what the suite asks for. Exit status 1 if one is not."""
    from fedtide.studies.tide.suite import chosen_worlds
    from fedtide.studies.tide.verify import methods_in
    from fedtide.studies.tide.verify import verify as verified

    chosen = chosen_worlds(worlds, suite)
    found = [verified(home, chosen) for home in methods_in(folder)]
    if as_json:
        print(json.dumps([asdict(each) | {"rows": [row._asdict() for row in each.rows]} for each in found]))
    else:
        for each in found:
            for line in (*each.problems, *(f"{each.method}, {world}: {why}" for world, why in each.refused.items())):
                print(line)
            state = f"{len(each.problems)} problems" if each.problems else "verified"
            print(f"{each.method}: {len(each.rows)} runs in {len(chosen)} worlds, {state}")
    if any(each.problems for each in found):
        raise typer.Exit(1)


@tide.command()
def board(
    folder: Annotated[Path | None, typer.Argument(help="Folder of methods to include in the leaderboard.")] = None,
    out: Annotated[Path, typer.Option(help="Output folder of the page and its tables.")] = Path("report/tide"),
    suite: Suite = FOLDER,
    alone: Annotated[bool, typer.Option("--alone", help="Exclude the published methods.")] = False,
    as_json: Json = False,
) -> None:
    """Verify methods, and write the board with the published ones as a page, a picture and tables."""
    require("report", "fedtide tide board")
    from fedtide.studies.tide.board import board as board_of
    from fedtide.studies.tide.board import entries
    from fedtide.studies.tide.page import HEADS, gain_lines, lines, table, write
    from fedtide.studies.tide.suite import chosen_worlds

    worlds = chosen_worlds(None, suite)
    rows = entries(folder, worlds, None if alone else suite)
    found = board_of(rows, worlds)
    page = write(found, rows, out, worlds[0].suite)
    if as_json:
        print(table(found).to_json(orient="records", double_precision=15))
        return
    print_table(HEADS, lines(found))
    print("\nGain over FedAvg in every world, points (* some runs diverged)")
    print_table(("method", *found.worlds), gain_lines(found))
    print(f"\nboard: {page}")
