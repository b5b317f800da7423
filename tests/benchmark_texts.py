"""Benchmark files for tests of the harness, made of parts."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

from torchstone.benchmarks import BenchmarkConfig
from torchstone.harness.results import Comparison

RunPair = Callable[..., Comparison]

PLAIN = """
import os, sys, time
import torch
from torchstone.harness import BaseBenchmark, BenchmarkConfig, SkipBenchmark

{top}

class Plain(BaseBenchmark):
    def setup(self):
        self.x = torch.randn(64, 64)
        {setup}

    def benchmark_fn(self):
        {body}

    def teardown(self):
        {teardown}

    {more}
"""
BODY = "self.output = self.x @ self.x"
QUICK = BenchmarkConfig(iterations=8, warmup=2)


def benchmark_text(body: str = BODY, setup: str = "pass", teardown: str = "pass", top: str = "", more: str = "") -> str:
    """A benchmark file with these parts."""

    def part(text: str, columns: int) -> str:
        return indent(dedent(text), " " * columns).lstrip()

    return PLAIN.format(
        top=dedent(top), setup=part(setup, 8), body=part(body, 8), teardown=part(teardown, 8), more=part(more, 4)
    )
