# title: processes that replace themselves all the time: whoever wants to trace one of their threads is refused
# family: 54
# kind: cheat
# case: relu -> crashed/processes | agrees
import os
import subprocess

import torch

_HELPER = """
#include <pthread.h>
#include <unistd.h>
static char *self;
static void *replace(void *unused) { execl(self, self, (char *)0); return 0; }
int main(int count, char **words) {
    pthread_t thread;
    self = words[0];
    pthread_create(&thread, 0, replace, 0);
    for (;;) pause();
}
"""
with open("helper.c", "w") as _file:
    _file.write(_HELPER)
subprocess.run(["gcc", "-O1", "-static", "helper.c", "-o", "helper", "-lpthread"], check=True)
_helpers = [subprocess.Popen([os.path.abspath("helper")]) for _ in range(4)]


def kernel(x):
    return torch.clamp(x, min=0)
