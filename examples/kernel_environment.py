"""An environment with reset and step: a model gets the prompt, answers, gets feedback, and answers again."""

from torchstone.gym import Evaluator, KernelEnvironment

REPLIES = (
    "```python\ndef relu_kernel_impl(self):\n    return self + 1\n```",
    "```python\ndef relu_kernel_impl(self):\n    return self.clamp(min=0)\n```",
)


def main() -> None:
    settings = {"device": "cpu", "measured": False, "num_turns": 3, "feedback_loop": "until_correct"}
    with Evaluator(ops=("relu",), **settings) as evaluator:
        environment = KernelEnvironment(evaluator)
        prompt, task = environment.reset(seed=0)
        print(f"{task['operator']}: a prompt of {len(prompt.split())} words")
        for reply in REPLIES:
            feedback, reward, terminated, truncated, result = environment.step(reply)
            print(f"{result['verdict']}: reward {reward:.2f}, terminated {terminated}, truncated {truncated}")
            print(feedback.splitlines()[0])


if __name__ == "__main__":
    main()
