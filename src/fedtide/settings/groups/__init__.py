"""Groups of settings within those of a run or an experiment."""
