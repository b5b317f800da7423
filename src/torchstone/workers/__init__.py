"""ONE CANDIDATE, ONE PROCESS: the untrusted side, and the judge's means of talking to it.

Nothing is imported here: the zygote and the workers import only the modules that they need.
"""
