"""What a run starts with: the dataset and the timeline."""
