"""Search for settings: a study of real runs on the validation split."""
