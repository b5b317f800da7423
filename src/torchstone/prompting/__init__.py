"""What a model is asked, and how its reply is read: for everything that lets models write kernels."""

from torchstone.prompting.code_blocks import CodeInReply, code_in
from torchstone.prompting.device_limits import DeviceLimits, limits_of
from torchstone.prompting.entry_points import entry_of, kernel_folder
from torchstone.prompting.languages import LANGUAGES, Language, language_named, require_runnable
from torchstone.prompting.prompt import prompt_for

__all__ = [
    "LANGUAGES",
    "CodeInReply",
    "DeviceLimits",
    "Language",
    "code_in",
    "entry_of",
    "kernel_folder",
    "language_named",
    "limits_of",
    "prompt_for",
    "require_runnable",
]
