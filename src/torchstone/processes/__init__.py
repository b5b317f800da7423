"""Processes that answer requests: framed messages, deadlines, how a process ended, and its end with all it started.

For the user's own trusted code, without a sandbox. Workers, which run untrusted kernels, share the keeper.
"""

from torchstone.processes.bounded_log import BoundedLog
from torchstone.processes.framing import receive, send
from torchstone.processes.peer import Ends, Peer, PeerEndedError, PeerOverranError, ending_in_words

__all__ = [
    "BoundedLog",
    "Ends",
    "Peer",
    "PeerEndedError",
    "PeerOverranError",
    "ending_in_words",
    "receive",
    "send",
]
