"""Lightning: the trainer, callbacks and loggers."""
