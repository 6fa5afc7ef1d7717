from __future__ import annotations

import torch

# Tiny tensors: a second intra-op thread costs more than it brings. (The folder of this file is also what makes
# ``support`` importable from every test.)
torch.set_num_threads(1)
