"""Rules by which the server combines the participants' updates."""
