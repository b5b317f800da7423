"""Random operators: results are compared by distribution, dependence and reuse of draws, not by value."""
