"""Models: one file per network family."""

NOT_PLUGINS = ("inputs", "kaiming", "norms", "residual")
