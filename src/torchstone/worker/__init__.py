"""The untrusted process: it loads a kernel, calls it and answers the judge. Also the process that forks it (zygote)."""
