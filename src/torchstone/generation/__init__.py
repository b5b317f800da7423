"""Lets language models write kernels, tells them what the judge found, and asks for better ones."""

from torchstone.generation.request import GenerationRequest
from torchstone.generation.run import GenerationResult, generate
from torchstone.generation.run_folder import StoredGeneration, read_generation, records_of

__all__ = [
    "GenerationRequest",
    "GenerationResult",
    "StoredGeneration",
    "generate",
    "read_generation",
    "records_of",
]
