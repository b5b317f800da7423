"""Models write kernels, are told what the judge found, and write better ones."""

from torchstone.generation.run_folder import StoredGeneration, read_generation, records_of

__all__ = ["StoredGeneration", "read_generation", "records_of"]
