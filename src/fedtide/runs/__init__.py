"""From settings to records: a run, a comparison, the stages of the pipeline."""
