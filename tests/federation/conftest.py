from commands import fedtide, folder, shared_data
from small_runs import run_once, small, stop_after

__all__ = ["fedtide", "folder", "run_once", "shared_data", "small", "stop_after"]
