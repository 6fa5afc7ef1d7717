"""From settings to an assembled run: its plug-ins, what does not go together, what it will take."""
