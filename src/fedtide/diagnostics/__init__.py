"""The quantities of the convergence analysis, for softmax regression, where they can be had."""
