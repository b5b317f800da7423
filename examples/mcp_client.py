"""A client of ``torchstone mcp``: checks a wrong kernel, reads why, checks a right one and measures it."""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters

WRONG = """
import torch


def relu_kernel_impl(x):
    return torch.where(x > 0, x, torch.zeros_like(x))
"""
RIGHT = WRONG.replace("torch.where(x > 0, x, torch.zeros_like(x))", "torch.clamp(x, min=0)")
SERVER = StdioServerParameters(
    command=sys.executable, args=["-m", "torchstone", "mcp", "--device", "cpu"], env=dict(os.environ)
)


async def main() -> None:
    async with Client(SERVER) as client:
        for source in (WRONG, RIGHT):
            kernel = {"operator": "relu", "source": source, "wait_seconds": 120}
            answer = await client.call_tool("check_kernel", kernel)
            print(answer.content[0].text)
        answer = await client.call_tool("measure_kernel", {**kernel, "effort": "quick"})
        feedback = answer.structured_content["kernels"][0]["feedback"]
        print(f"right: {feedback['right']}, speedup: {feedback.get('overall_speedup')}")


if __name__ == "__main__":
    asyncio.run(main())
