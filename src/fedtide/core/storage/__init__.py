"""Files that are complete or absent, locks, sealed files and arrays."""
