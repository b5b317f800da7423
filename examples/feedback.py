"""What is wrong with a kernel, in words for its author: the text that models are given."""

import torchstone
from torchstone.feedback import feedback_of

KERNEL = """
import torch


def relu_kernel_impl(x):
    return torch.where(x > 0, x, torch.zeros_like(x))
"""


def main() -> None:
    result = torchstone.check(KERNEL, "aten.relu.default", device="cpu", effort="quick")
    feedback = feedback_of(result.records)
    print(feedback.to_text(max_tokens=400))
    for case in feedback.failed_cases:
        print(f"{case.problem}: {case.cases} cases, first with {case.arguments[0].dtype} {case.arguments[0].shape}")


if __name__ == "__main__":
    main()
