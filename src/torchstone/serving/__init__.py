"""Serving: other programs ask for verdicts. The service knows no protocol; `mcp_server` speaks MCP for it."""

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
