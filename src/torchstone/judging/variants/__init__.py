"""Hidden variants of a case: the same operator on other sizes, memory, scalars or gradients, unknown to the kernel."""
