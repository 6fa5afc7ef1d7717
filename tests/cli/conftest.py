from commands import fedtide, folder, shared_data
from fragile import marks
from own_plugins import own

__all__ = ["fedtide", "folder", "marks", "own", "shared_data"]
