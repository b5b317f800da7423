"""HOW IT IS ATTACKED: a corpus of cheats and honest look-alikes, and the judging of it on this machine."""

from torchstone.redteam.corpus import Expectation, Fixture, read_corpus
from torchstone.redteam.run import Finding, choose_fixtures, judge_corpus

__all__ = ["Expectation", "Finding", "Fixture", "choose_fixtures", "judge_corpus", "read_corpus"]
