from commands import shared_data
from fragile import marks
from small_runs import run_once, small, stop_after

__all__ = ["marks", "run_once", "shared_data", "small", "stop_after"]
