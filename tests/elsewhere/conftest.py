from commands import fedtide, folder, shared_data

__all__ = ["fedtide", "folder", "shared_data"]
