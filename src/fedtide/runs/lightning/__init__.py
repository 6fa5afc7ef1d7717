"""Lightning: the trainer, callbacks and loggers."""

import fedtide.core.lightning  # noqa: F401 (before modules import parts of it)
