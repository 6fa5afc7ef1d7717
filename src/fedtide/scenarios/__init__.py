"""Scenarios write the timeline: who is present in which round, with which data."""

NOT_PLUGINS = ("timeline", "picture")
