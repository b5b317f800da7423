"""What another harness brings along: its own base class and config class. Torchstone runs its files unchanged."""

from dataclasses import dataclass


@dataclass
class TheirConfig:
    iterations: int = 100
    warmup: int = 5
    enable_fancy_feature: bool = False
    measurement_timeout_seconds: float = 15.0


class TheirBase:
    def setup(self):
        pass

    def teardown(self):
        pass

    def get_config(self):
        return TheirConfig(iterations=25, enable_fancy_feature=True)
