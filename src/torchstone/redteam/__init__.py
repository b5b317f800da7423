"""Red team: a corpus of cheats and honest look-alikes, and the judging of it on this machine."""

from torchstone.redteam.corpus import Expectation, Fixture, read_corpus
from torchstone.redteam.run import FixtureResult, choose_fixtures, judge_corpus

__all__ = ["Expectation", "Fixture", "FixtureResult", "choose_fixtures", "judge_corpus", "read_corpus"]
