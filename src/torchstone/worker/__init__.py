"""The untrusted process: it loads one candidate, calls it and answers the judge."""
