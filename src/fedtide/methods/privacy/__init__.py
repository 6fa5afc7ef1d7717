"""How the clients' label histograms are summed, with or without showing the server each of them: one protocol per file."""
