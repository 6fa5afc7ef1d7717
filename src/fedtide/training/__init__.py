"""Local training: the engine, models, objectives and traced programs."""
