from own_plugins import own

__all__ = ["own"]
