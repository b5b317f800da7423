"""The judge's means of starting, asking, freezing and reading workers. Trusted; runs in the judge."""
