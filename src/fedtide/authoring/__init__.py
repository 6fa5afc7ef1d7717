"""Writing plug-ins: files to start from, and the tests that every plug-in passes."""
