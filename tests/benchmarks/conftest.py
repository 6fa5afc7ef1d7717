from benchmark_scripts import call, start

__all__ = ["call", "start"]
