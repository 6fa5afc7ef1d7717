"""When what clients see changes its meaning."""
