from small_runs import run_once, small, stop_after

__all__ = ["run_once", "small", "stop_after"]
