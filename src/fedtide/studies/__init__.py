"""What is built out of runs: reproduced tables, searches, the benchmark Tide."""
