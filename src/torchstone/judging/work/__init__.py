"""Work of a case: bytes and arithmetic that any kernel needs. For the limit of the device."""
