"""Records of runs, and their mirror in MLflow."""
