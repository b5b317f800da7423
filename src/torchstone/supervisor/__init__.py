"""Starts, commands, freezes and reads workers, the sandboxed processes that run kernels. Trusted code."""
