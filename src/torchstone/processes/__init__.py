"""Processes: asks child processes with deadlines, kills them with all they started, reserves memory between processes.

For the user's own trusted code, without a sandbox. Workers, which run untrusted kernels, use the functions of `keeper`.
"""

from torchstone.processes.bounded_log import BoundedLog
from torchstone.processes.child_process import ChildEndedError, ChildProcess, Ends, ReplyTimeoutError, ending_in_words
from torchstone.processes.msgpack_framing import receive, send

__all__ = [
    "BoundedLog",
    "ChildEndedError",
    "ChildProcess",
    "Ends",
    "ReplyTimeoutError",
    "ending_in_words",
    "receive",
    "send",
]
