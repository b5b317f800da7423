"""A small case, and a fake `ncu` that is a real program: it runs what it is given and prints a real-looking table."""

from __future__ import annotations

import sys
from pathlib import Path

from torchstone.schema import Case, Normal, Tensor

RELU = Case("test", "aten.relu.default", (Tensor((33, 17), "float32", Normal()),), timed=True)

NCU_TABLE = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__block_size",'
    '"launch__grid_size","launch__registers_per_thread","lts__t_sector_hit_rate.pct",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"\n'
    '"","","","","","","","","","","","%","ns","","","register/thread","%","%","%"\n'
    '"0","4242","python3.12","127.0.0.1","void at::native::vectorized_elementwise_kernel<(int)4, [bold]>(int, T2)","1",'
    '"7","(128, 1, 1)","(1024, 1, 1)","0","9.0","40.00","3,000","128","1,024","32","50.00","20.00","80.00"\n'
    '"1","4242","python3.12","127.0.0.1","void at::native::vectorized_elementwise_kernel<(int)4, [bold]>(int, T2)","1",'
    '"7","(128, 1, 1)","(1024, 1, 1)","0","9.0","60.00","1,000","128","1,024","32","n/a","40.00","60.00"\n'
    '"2","4242","python3.12","127.0.0.1","triton_relu","1",'
    '"7","(256, 1, 1)","(7, 1, 1)","0","9.0","10.5","2,500.5","256","7","16","99.9","1.25","12.5"\n'
)

_FAKE = """#!{python}
import json, os, subprocess, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    print(json.dumps([arguments, sorted(os.environ), os.getcwd()]), file=log)
if "--version" in arguments:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880) (public-release)")
elif "--import" in arguments:
    print("==PROF== some talk\\n" + {table!r})
else:
    print("==PROF== Connected to process 1")
    code = subprocess.call(arguments[arguments.index({python!r}):])
    {then}
    sys.exit(code)
"""
WRITES_REPORT = "open(arguments[arguments.index('-o') + 1] + '.ncu-rep', 'w').write('the report')"


class FakeTool:
    """The program, and what it was called with."""

    def __init__(self, folder: Path, then: str = WRITES_REPORT, table: str = NCU_TABLE) -> None:
        self.path = str(folder / "ncu")
        self.log = folder / "calls.jsonl"
        text = _FAKE.format(python=sys.executable, log=str(self.log), table=table, then=then)
        Path(self.path).write_text(text)
        Path(self.path).chmod(0o755)
