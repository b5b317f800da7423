"""The sandbox of a worker: namespaces, Landlock, seccomp, capabilities, limits."""
