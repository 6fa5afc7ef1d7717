"""Scenarios write the timeline: who is present in which round, with which data."""

NOT_PLUGINS = ("label_groups", "picture", "presence", "timeline", "writing")
