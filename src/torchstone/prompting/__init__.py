"""Builds the prompts that ask models for kernels, and reads the code in their replies."""

from torchstone.prompting.code_blocks import CodeInReply, code_in
from torchstone.prompting.device_limits import DeviceLimits, limits_of
from torchstone.prompting.folder_and_function_names import PROBLEM_ENTRY, entry_for, entry_of, kernel_folder
from torchstone.prompting.kernelbench_prompt import language_of_solutions, problem_prompt
from torchstone.prompting.languages import LANGUAGES, Language, language_named, require_runnable
from torchstone.prompting.prompt import prompt_for

__all__ = [
    "LANGUAGES",
    "PROBLEM_ENTRY",
    "CodeInReply",
    "DeviceLimits",
    "Language",
    "code_in",
    "entry_for",
    "entry_of",
    "kernel_folder",
    "language_named",
    "language_of_solutions",
    "limits_of",
    "problem_prompt",
    "prompt_for",
    "require_runnable",
]
