"""The dataset of a run as MLflow's input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedtide.world.dataset import Dataset

_DIGEST = 36  # characters that MLflow keeps


def dataset_inputs(facts: Mapping[str, Any], settings: Mapping[str, Any], data: Dataset | None) -> list[Any]:
    """The training and the test samples, each as a ``DatasetInput``.

    Args:
        facts, settings: manifest and settings of the run. data: its dataset, if it is loaded, for shapes and sizes; nothing
            is loaded for this.
    """
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import DatasetInput, InputTag

    source = CodeDatasetSource({"fedtide": json.dumps(settings.get("data", {}), sort_keys=True)})
    found = []
    for split, context in (("train", "training"), ("test", "testing")):
        described: Any = MetaDataset  # which mypy takes for abstract
        entity = described(source, f"{facts['dataset']} {split}", str(facts["data"])[:_DIGEST])._to_mlflow_entity()
        if data is not None:
            entity = _with_shapes(entity, split, data)
        found.append(DatasetInput(entity, [InputTag("mlflow.data.context", context)]))
    return found


def _with_shapes(entity: Any, split: str, data: Dataset) -> Any:
    from mlflow.entities import Dataset as Entity
    from mlflow.types import Schema, TensorSpec

    inputs, labels = (getattr(data, f"{split}_{what}").numpy() for what in ("inputs", "labels"))
    specs = {
        "features": Schema([TensorSpec(inputs.dtype, (-1, *data.input_shape))]).to_dict(),
        "targets": Schema([TensorSpec(labels.dtype, (-1, *labels.shape[1:]))]).to_dict(),
    }
    profile = {
        "samples": len(labels),
        **({"classes": data.num_classes} if data.task == "classification" else {"outputs": data.outputs}),
        "features_shape": list(inputs.shape),
        "features_nbytes": inputs.nbytes,
    }
    schema = json.dumps({"mlflow_tensorspec": specs})
    return Entity(entity.name, entity.digest, entity.source_type, entity.source, schema, json.dumps(profile))
