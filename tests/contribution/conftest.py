from commands import fedtide, folder, shared_data
from small_runs import small

__all__ = ["fedtide", "folder", "shared_data", "small"]
