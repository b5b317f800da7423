"""A reward function for TRL: one number for each completion of a batch. TRL itself is not needed to run this."""

from torchstone.gym import CompletionReward, Evaluator

RIGHT = """The sign decides.

```python
def relu_kernel_impl(self):
    return torch.where(self < 0, 0, self)
```
"""
WRONG = """```python
def relu_kernel_impl(self):
    return abs(self)
```
"""


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
