"""Judges kernels for other programs: `KernelService` knows no protocol, `mcp_server` offers it to agents over MCP."""

from torchstone.serving.answers import (
    CaseFacts,
    Explanation,
    GivenKernel,
    JobAnswer,
    KernelAnswer,
    OperatorFacts,
    ProfileAnswer,
    RecordName,
)
from torchstone.serving.service import KernelService, ServiceOptions

__all__ = [
    "CaseFacts",
    "Explanation",
    "GivenKernel",
    "JobAnswer",
    "KernelAnswer",
    "KernelService",
    "OperatorFacts",
    "ProfileAnswer",
    "RecordName",
    "ServiceOptions",
]
