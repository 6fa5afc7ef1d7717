"""The summary's numbers by hand, and the figure's file."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import image

import support
from fedtide.report.picture import boundaries, concept_shares, draw, holdings, most_frequent_labels, presence, summary
from fedtide.world.concepts import Concept, Concepts
from worlds import timeline, world

LABELS = np.array([0, 0, 0, 1, 1, 1, 0, 1])


def ids(*numbers):
    return np.array(numbers, dtype=np.int64)


@pytest.fixture
def moving():
    """Client 0 has two overlapping shards in turn, client 1 one, client 2 none, client 3 never comes."""
    shards, present = [ids(0, 1, 3), ids(1, 2), ids(4, 5), ids()], [{0: 0, 2: 3}, {0: 0, 2: 3}, {0: 1, 1: 2}]
    notes = {"scenario": "by hand"}
    made = support.timeline(shards, present, clients=4, session_of_round=[0, 0, 1], classes=2, notes=notes)
    return replace(made, validation=ids(6, 7))


def test_holdings_count_a_sample_once(moving):
    assert holdings(moving, LABELS).tolist() == [[3, 1], [0, 2], [0, 0], [0, 0]]


def test_the_most_frequent_labels_of_clients_whose_data_moves(moving):
    assert most_frequent_labels(moving, LABELS).tolist() == [[0, 0, 0], [-1, -1, 1], [-1, -1, -1], [-1, -1, -1]]
    assert most_frequent_labels(timeline("static", world(), rounds=2, num_clients=3), np.zeros(300, dtype=int)) is None


def test_concepts_by_client_and_round_are_shares_of_its_samples(moving):
    """Two samples of client 0's second shard are seen under concept 1; positions are virtual, 8 samples are stored."""
    seen = replace(
        moving,
        shards=[ids(0, 1, 3), ids(1 + 8, 2), ids(4 + 8, 5 + 8), ids()],
        concepts=Concepts((Concept(), Concept(labels=(1, 0))), train=8, test=8),
    )
    shares = concept_shares(seen)
    assert shares.tolist() == [
        [[1, 0], [1, 0], [0.5, 0.5]],
        [[0, 0], [0, 0], [0, 1]],
        [[0, 0], [0, 0], [0, 0]],
        [[0, 0], [0, 0], [0, 0]],
    ]
    assert concept_shares(moving) is None


@pytest.mark.slow
def test_concepts_are_drawn_below(tmp_path, moving):
    seen = replace(moving, concepts=Concepts((Concept(), Concept(labels=(1, 0))), train=8, test=8))
    draw(seen, np.tile(LABELS, 2), tmp_path / "world.png")
    draw(moving, LABELS, tmp_path / "plain.png")
    higher, plain = (image.imread(tmp_path / f"{name}.png").shape for name in ("world", "plain"))
    assert higher[0] > plain[0]
    assert higher[1] == plain[1]


def test_presence_and_boundaries(moving):
    assert presence(moving).astype(int).tolist() == [[1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0]]
    assert boundaries(moving) == [{"session": 1, "round": 2, "arrived": 1, "departed": 1, "stayed": 1}]


def test_summary(moving):
    found = summary(moving, LABELS)
    assert json.loads(json.dumps(found)) == found
    # Label shares (3/4, 1/4) and (0, 1) against (1/2, 1/2) of all: distances 1/4 and 1/2.
    assert found["mean_total_variation"] == pytest.approx(0.375)
    assert found["samples_per_client"] == {"min": 0, "median": 2.0, "max": 4}
    assert found["samples_per_class"] == [3, 3]
    assert (found["clients"], found["clients_ever_present"], found["clients_present"]) == (4, 3, {"min": 2, "max": 2})
    assert (found["rounds"], found["sessions"], found["validation_samples"]) == (3, 2, 2)
    assert found["notes"] == {"scenario": "by hand"}
