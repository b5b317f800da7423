"""HOW DOES IT SCALE? Operations timed over a grid of batch sizes, sequence lengths and dimensions."""
