"""Which samples are held out, thinned or shared."""
