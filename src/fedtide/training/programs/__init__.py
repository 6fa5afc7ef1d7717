"""Traced programs of tensor operations and what makes them faster."""
