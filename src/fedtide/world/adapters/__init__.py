"""Data of other libraries as a :class:`fedtide.Dataset`: one file per library."""
