"""Search for good settings: a study of real runs on the validation split."""
