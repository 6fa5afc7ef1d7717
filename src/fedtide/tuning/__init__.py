"""Searching settings."""
