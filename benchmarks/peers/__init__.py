"""Other libraries in the benchmarks' workloads: what each gets, one file per library, and their environments."""
