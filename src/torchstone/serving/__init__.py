"""Judges kernels for other programs: `KernelService` knows no protocol, `mcp_server` offers it to agents over MCP."""

from torchstone.serving.answers import (
    CaseAnswer,
    Explanation,
    GivenKernel,
    JobAnswer,
    KernelAnswer,
    OperatorAnswer,
    ProfileAnswer,
    RecordName,
)
from torchstone.serving.service import KernelService, ServiceOptions

__all__ = [
    "CaseAnswer",
    "Explanation",
    "GivenKernel",
    "JobAnswer",
    "KernelAnswer",
    "KernelService",
    "OperatorAnswer",
    "ProfileAnswer",
    "RecordName",
    "ServiceOptions",
]
