"""When clients are present: periods, visits, membership."""
