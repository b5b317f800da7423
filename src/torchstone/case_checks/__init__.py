"""Child processes that suites start to record or try cases in torch, with the judge's comparison."""
