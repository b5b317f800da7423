"""Hidden variants of a case: other sizes, memory, scalars or requested gradients, unknown to the candidate."""
