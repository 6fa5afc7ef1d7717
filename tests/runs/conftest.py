from commands import fedtide, folder, shared_data
from fragile import marks
from small_runs import run_once, small, stop_after

__all__ = ["fedtide", "folder", "marks", "run_once", "shared_data", "small", "stop_after"]
