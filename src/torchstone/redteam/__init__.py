"""HOW IT IS ATTACKED: a corpus of cheats and honest look-alikes, and the judging of it on this machine."""

from torchstone.redteam.corpus import Expectation, Fixture, read_corpus
from torchstone.redteam.run import Finding, judge_corpus

__all__ = ["Expectation", "Finding", "Fixture", "judge_corpus", "read_corpus"]
