"""Other libraries are imported by what needs them alone."""

import subprocess
import sys

PROGRAM = """
import sys, fedtide

data = fedtide.from_tensors([[0.0], [1.0]] * 9, [0, 1] * 9)
fedtide.from_torch, fedtide.from_huggingface
print(sorted({"datasets", "torchvision", "PIL"} & set(sys.modules)))
"""


def test_neither_torchvision_nor_datasets_is_imported_with_the_package():
    called = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert called.stdout.split() == ["[]"]
