from commands import fedtide, folder, shared_data
from own_plugins import own

__all__ = ["fedtide", "folder", "own", "shared_data"]
