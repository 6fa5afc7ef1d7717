"""What methods consist of: algorithms, initializers and the plug-ins around them."""
