"""What everything else stands on: errors, plug-ins, randomness, source."""
