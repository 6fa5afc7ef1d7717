"""How a report is drawn."""
