"""Scenarios write the timeline: who is present in which round, with which data."""
