"""Tables, figures and one page from run directories."""
