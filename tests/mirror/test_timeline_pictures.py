"""Pictures that runs of one process share."""

import numpy as np
import torch

from fedtide.mirror.mlflow_run import draw_timeline
from support import dataset, deal, timeline


def test_the_picture_of_a_timeline_is_that_of_its_labels(tmp_path):
    """Two datasets of one size can be dealt alike."""
    made, pictures = timeline(deal([4, 4]), [{0: 0, 1: 1}]), set()
    for labels in (np.arange(8) % 3, np.arange(8) // 3, np.arange(8) % 3):
        made.save(tmp_path / "timeline.npz", "any")
        draw_timeline(tmp_path, dataset(torch.zeros(8, 2), torch.from_numpy(labels), 3))
        pictures.add((tmp_path / "timeline.png").read_bytes())
        (tmp_path / "timeline.png").unlink()
    assert len(pictures) == 2
