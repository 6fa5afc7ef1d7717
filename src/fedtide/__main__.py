"""``python -m fedtide``."""

from fedtide.cli import main

main()
