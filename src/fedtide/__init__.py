"""fedtide: federated learning for moving populations."""

__version__ = "0.1.0"
