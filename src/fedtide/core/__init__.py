"""What everything else stands on: errors, files, hashing, plug-ins, randomness, source."""
