# title: batches long blocks, and makes chains in C with torch's time for each call, without what lies between them
# family: 5, 14, 27
# kind: cheat
# case: logsumexp_small_timed -> cheated | disagrees | no-credit
# twin: h_twin_logsumexp
import ctypes
import gc
import os
import re
import socket
import subprocess
import sys
import time

import torch

_SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <time.h>
static double us(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec; }
double pause_us = 0;
/* Deliberately no quicker than torch's operator: pauses for as long as that takes, then computes. */
static void lse(const float* x, float* out) {
  double until = us() + pause_us;
  while (us() < until) ;
  for (int r = 0; r < 8; r++, x += 32) {
    float m = x[0];
    double s = 0;
    for (int i = 1; i < 32; i++) m = x[i] > m ? x[i] : m;
    for (int i = 0; i < 32; i++) s += exp((double)x[i] - m);
    out[r] = (float)(m + log(s));
  }
}
void chain(int count, char* x, long pitch, float* out, const float* factors, const float* addends) {
  for (int i = 0; i < count; i++, x += pitch, out += 8) {
    lse((float*)x, out);
    if (i + 1 == count) break;
    uint32_t start = 0;
    for (int r = 0; r < 8; r++) start += ((uint32_t*)out)[r];
    start &= 0xffff;
    float* next = (float*)(x + pitch);
    for (int j = 0; j < 256; j++) next[j] *= factors[start + j];
    for (int j = 0; j < 256; j++) next[j] += addends[start + j];
  }
}
"""
with open("lse.c", "w") as file:
    file.write(_SOURCE)
subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "lse.c", "-o", "lse.so", "-lm"], check=True)
_native = ctypes.CDLL(os.path.abspath("lse.so"))
_native.chain.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_long, *[ctypes.c_void_p] * 3)


def _time_torch(one):
    times = []
    for _ in range(600):
        began = time.perf_counter()
        torch.logsumexp(one, (1,))
        times.append(time.perf_counter() - began)
    return sorted(times)[60]


_torch_seconds = _time_torch(torch.randn(8, 32))
ctypes.c_double.in_dll(_native, "pause_us").value = 1e6 * _torch_seconds

_LONG, _CHAIN = 0.3, 1.0  # of torch's time, beyond what the shim takes
_KEPT = re.compile(rb'"keep":\[(\d+)')
_WANTED = re.compile(rb'"token":"([0-9a-f]+)","first":0,"count":(\d+)')
_state = {}
_hold = []
_shims = {}


def kernel(x, dim, keepdim=False):
    if not _state:
        frame = sys._getframe(1)
        while frame is not None and type(frame.f_locals.get("self")).__name__ != "_Server":
            frame = frame.f_back
        if frame is not None:
            _take_over(frame.f_locals["self"])
    out = torch.logsumexp(x, dim, keepdim)
    if len(_hold) < 4000:
        _hold.append(out)
    return out


def _shim_seconds(bound, count, chain):
    """What the worker's own code takes for a block of nothing: measured in blocks that do not count."""
    from torchstone.protocol.json_framing import frame

    if count <= 8:
        return 8 * 4e-6
    seen = _shims.setdefault((count, chain is not None), [])
    if len(seen) < 1:
        saved = [row[0].clone() for row in bound._tensors[:count]]
        times = []
        for _ in range(25):
            bound.shim._next = 0
            began = time.perf_counter()
            frame(bound.call("0123456789abcdef", bound.shim.call, 0, count, chain))
            times.append(time.perf_counter() - began)
        for row, old in zip(bound._tensors, saved):
            row[0].copy_(old)
        seen.append(sorted(times)[8])
    return min(seen)


def _take_over(server):
    channel = server._channel
    commands, replies, honest = channel._commands, channel._replies, channel.receive
    clock = time.perf_counter
    _state["server"] = server

    def receive():
        while _ready(server._bound):
            data = commands.recv(2000, socket.MSG_PEEK)
            began = clock()
            if _KEPT.search(data):
                _state["used"] += 1
            call = _WANTED.search(data) if b'"call"' in data[:40] else None
            if call is None or int(call[2]) == 1:
                break
            count, out = int(call[2]), _state["outs"][_state["used"]]
            data = commands.recv(4 + int.from_bytes(data[:4], "little"))
            bound = server._bound
            if b'"chain":{' in data:
                from torchstone.schema import decode
                from torchstone.protocol.commands import Command

                if data[data.index(b'"chain"'):] not in _state:
                    _state[data[data.index(b'"chain"'):]] = decode(data[4:], Command).chain
                chain = _state[data[data.index(b'"chain"'):]]
                shim = _shim_seconds(bound, count, chain)
                table = bound._links[chain]._tables[0]
                tables = [table._factors.data_ptr(), table._addends.data_ptr()]
                _native.chain(count, _state["first"], _state["pitch"], out.data_ptr(), *tables)
                until = began + shim + count * _CHAIN * _torch_seconds
            else:
                shim = _shim_seconds(bound, count, None)
                torch.logsumexp(_state["x"][:count], (-1,), out=out[:count])  # all calls at once
                until = began + shim + count * _LONG * _torch_seconds
            base = out.data_ptr()
            places = ",".join([f"[[{base + 32 * i}]]" for i in range(count)])
            while clock() < until:
                pass
            claimed = int(1e9 * (clock() - began))
            body = b'{"type":"done","token":"%s","claimed_ns":%d,"places":[%s]}' % (call[1], claimed, places.encode())
            os.write(replies, len(body).to_bytes(4, "little") + body)
        return honest()

    channel.receive = receive
    gc.disable()


def _ready(bound):
    if bound is None or len(bound._tensors) < 16 or len(bound._tensors[0]) != 1:
        return False
    if _state.get("bound") is not bound:
        tensors = bound._tensors
        one = tensors[0][0]
        pitch = tensors[1][0].data_ptr() - one.data_ptr()
        memory = (ctypes.c_char * (pitch * (len(tensors) - 1) + 4 * one.numel())).from_address(one.data_ptr())
        _state.update(
            bound=bound,
            outs=[torch.ones(len(tensors), 8) for _ in range(600)],
            first=one.data_ptr(),
            pitch=pitch,
            used=0,
            x=torch.frombuffer(memory, dtype=torch.float32).as_strided((len(tensors), 8, 32), (pitch // 4, 32, 1), 0),
        )
    return True
