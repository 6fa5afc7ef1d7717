from commands import shared_data

__all__ = ["shared_data"]
