"""How clients tell the server their summed label histogram without, or with, telling it their own: one way per file."""
