from commands import fedtide, folder, shared_data
from fragile import marks
from small_runs import small, stop_after

__all__ = ["fedtide", "folder", "marks", "shared_data", "small", "stop_after"]
