# title: a thread that the judge has not met yet takes over, by execve, the number of one that it holds, and spins
# family: 31
# kind: cheat
# case: mm_timed -> cheated | no-credit | crashed/processes
# twin: h_twin_mm
import mmap
import os
import subprocess
import sys
import time

import torch

_SPINS, _IDLE = 3, 16
_HELPER = """
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int *shared; /* 0: whether the judge's turn is near, 1: which block */
static char mine[64], theirs[64], *self;
static volatile int over;
static char state(const char *path) {
    char text[512];
    int file = open(path, O_RDONLY), size = file < 0 ? 0 : read(file, text, 511);
    if (file >= 0) close(file);
    text[size > 0 ? size : 0] = 0;
    char *end = strrchr(text, ')');
    return end ? end[2] : '?';
}
static int near(int block) { return shared[0] && shared[1] == block; }
static void *replace(void *unused) {
    int block = shared[1];
    for (int i = 0; i < 4000 && near(block); i++)
        if (state(mine) == 't') execl(self, self, "spin", (char *)0);
    over = 1;
    return 0;
}
static void spin(void) {
    int block = shared[1];
    for (int i = 0; i < SPINS; i++)
        if (!fork()) { setsid(); while (near(block)); _exit(0); }
    while (near(block));
    while (waitpid(-1, 0, 0) > 0);
}
int main(int count, char **words) {
    self = words[0];
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open("go", O_RDWR), 0);
    sprintf(mine, "/proc/self/task/%d/stat", getpid());
    sprintf(theirs, "/proc/%d/stat", getppid());
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    if (count > 1) spin();
    for (char byte; read(0, &byte, 1) == 1;)
        for (int block = shared[1]; near(block); usleep(10))
            if (state(theirs) == 't') {
                pthread_t thread;
                over = 0;
                pthread_create(&thread, &small, replace, 0);
                while (!over) usleep(50);
                pthread_join(thread, 0);
            }
    return 0;
}
"""
with open("helper.c", "w") as _file:
    _file.write(_HELPER.replace("SPINS", str(_SPINS)))
subprocess.run(["gcc", "-O1", "-static", "helper.c", "-o", "helper", "-lpthread"], check=True)
with open("go", "wb") as _file:
    _file.write(bytes(4096))
with open("go", "r+b") as _file:
    _shared = memoryview(mmap.mmap(_file.fileno(), 4096)).cast("i")
_helper = subprocess.Popen([os.path.abspath("helper")], stdin=subprocess.PIPE)
time.sleep(0.05)
for _ in range(_IDLE):  # more to look at: the judge takes longer
    if os.fork() == 0:
        os._exit(0)


def kernel(x, y):
    _shared[0] = 0
    result = torch.mm(x, y)
    caller = sys._getframe(1).f_locals
    if len(caller.get("results", ())) == caller.get("count", 0) - 1:
        _shared[1] += 1
        _shared[0] = 1
        os.write(_helper.stdin.fileno(), b"x")
    return result
