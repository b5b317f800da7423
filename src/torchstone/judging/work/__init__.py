"""The work of a case: the bytes and the arithmetic that any kernel needs, for the limit that the hardware sets."""
