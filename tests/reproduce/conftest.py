from pathlib import Path

import pytest

from commands import fedtide, folder, shared_data
from fragile import marks

__all__ = ["fedtide", "folder", "marks", "shared_data", "tiny"]

TINY = """
experiment:
  title: A tiny table
  source: {{paper: Nobody, table: Table 1}}
  published: published/tiny.csv
  profiles:
    plain: {{}}
    fast: {{local: {{momentum: 0.5}}}}
  grid:
    alpha: {{key: partition.alpha, values: [0.3, 0.7]}}
  transitions: {{second: 2, third: 3}}
  measure: {{name: transition_accuracy, windows: [2, 1]}}
data: {{name: digits, root: {data}}}
scenario: {{name: sessions, num_devices: 3, num_sessions: 3, rounds_per_session: 2}}
partition: {{name: dirichlet_session}}
model: {{name: softmax_regression}}
local: {{steps: 1, lr: 0.1}}
compare: {{algorithms: [fedavg, scaffold], initializers: [previous, average], seeds: [1, 2], workers: 1}}
tracking: {{mlflow: false}}
"""
FAST = "local: {lr: 0.3, momentum: 0.1}\nexperiment: {substitutes: {average: {scaffold: fedavg}}}\n"
PUBLISHED = """alpha,algorithm,transition,method,mean,std
0.3,fedavg,second,previous,10.0,1.0
0.3,fedavg,third,previous,20.0,
0.7,scaffold,third,average,30.0,2.0
"""


@pytest.fixture
def tiny(folder: Path, shared_data: Path) -> Path:
    """The file of an experiment with two profiles and three cells, below the working directory."""
    family = folder / "experiments" / "small"
    for name in ("profiles", "published"):
        (family / name).mkdir(parents=True)
    (family / "tiny.yaml").write_text(TINY.format(data=shared_data))
    (family / "profiles" / "plain.yaml").write_text("")
    (family / "profiles" / "fast.yaml").write_text(FAST)
    (family / "published" / "tiny.csv").write_text(PUBLISHED)
    return family / "tiny.yaml"
