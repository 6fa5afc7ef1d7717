from commands import fedtide, folder, shared_data
from fragile import marks

__all__ = ["fedtide", "folder", "marks", "shared_data"]
