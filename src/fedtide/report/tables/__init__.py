"""Tables of a report and what they are computed from."""
