"""A reward function for TRL: one number for each completion of a batch. TRL itself is not needed to run this."""

from torchstone.gym import CompletionReward, Evaluator

RIGHT = "The sign decides.\n```python\ndef relu_kernel_impl(self):\n    return torch.where(self < 0, 0, self)\n```"
WRONG = "```python\ndef relu_kernel_impl(self):\n    return abs(self)\n```"


def main() -> None:
    with Evaluator(ops=("relu",), device="cpu", measured=False) as evaluator:
        reward = CompletionReward(evaluator)
        prompt = evaluator.task("relu").prompt  # what the dataset's column `prompt` holds
        # GRPOTrainer(reward_funcs=[reward.trl], …) calls it so; `operator` is a column of the dataset
        rewards = reward.trl(
            prompts=[prompt] * 3,
            completions=[RIGHT, WRONG, [{"role": "assistant", "content": "I cannot do that."}]],
            operator=["relu"] * 3,
            completion_ids=[[1], [2], [3]],
        )
    for name, value in zip(("right", "wrong", "no code"), rewards, strict=True):
        print(f"{name}: not judged" if value is None else f"{name}: {value:.2f}")


if __name__ == "__main__":
    main()
