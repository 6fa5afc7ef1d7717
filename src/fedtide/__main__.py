"""``python -m fedtide``."""

from fedtide.cli.main import main

main()
