"""The lines of `on_device.py`: what each runs, and how its figures are read. Issue, today's and wanted figures."""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchstone.measuring import Timing, timing
from torchstone.schema import Agrees, Measurement, Record, Unsupported, decode

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "torchstone_runs"
OPENED = "import torch; torch.zeros(1, device='{device}'); '{device}' == 'cuda' and torch.cuda.synchronize()"
TINY_NS = 10_000.0
"""Device time of a call: up to this a case is tiny."""
MOST_FAILED_AGAIN = 24
"""Failed tests that are run again, alone."""
MEMORY_TESTS = (
    "tests/gpu/test_gpu_memory_shortage.py",
    "tests/gpu/test_gpu_harness.py::test_sides_that_do_not_fit_together_run_one_after_the_other",
)
"""Tests that fill the device's memory. Tests beside them would fail for lack of it."""
KERNELBENCH_ENDING_SECONDS = 45.0
"""For the benchmark of KernelBench to end its run and to print: its own limit is by so much shorter."""

Figures = dict[str, Any]
"""`measured`: in words. `met`: whether it is what was wanted; None: not known. And the figures themselves."""


class Setting(NamedTuple):
    """What all lines of a call share."""

    device: str
    is_brief: bool
    work: Path
    traces: Path | None
    problems: Path | None
    seen: dict[str, Figures]
    """Figures of the lines before, by name."""


class Reading(NamedTuple):
    """What a line has left behind."""

    setting: Setting
    folder: Path
    log: str
    code: int | None
    """None: it was cut."""
    seconds: float
    began_unix_seconds: float

    @property
    def told(self) -> dict[str, Any]:
        """What a benchmark wrote with --json."""
        found: dict[str, Any] = json.loads((self.folder / "found.json").read_text())
        return found

    @property
    def records(self) -> list[Record]:
        """Of a run of the command line, the last one of each job."""
        (file,) = self.folder.glob("*/records.jsonl")
        found = [decode(line, Record) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
        return list({record.job_key: record for record in found}.values())


Command = Callable[[Setting, Path], Sequence[str] | str]
"""The command of a line; a text says why there is none."""


class Line(NamedTuple):
    """One thing to show."""

    part: int
    name: str
    issue: str
    what: str
    today: str
    wanted: str
    seconds: float
    """Limit."""
    command: Command
    read: Callable[[Reading], Figures]
    is_brief: bool = False
    """Whether a few seconds on a CPU can try it."""
    imports_tests: bool = False
    keeps_cache: bool = False
    """Whether a later call finds what this one has learnt, as it does its run."""

    def environment(self, setting: Setting) -> dict[str, str]:
        """Caches begin empty with each call of the program, and lines share them; or they are kept beside the runs."""
        cache = KEPT / "on_device_cache" if self.keeps_cache else setting.work / "cache"
        found = {"XDG_CACHE_HOME": str(cache)}
        if self.imports_tests:
            path = [str(ROOT / "src"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
            found["PYTHONPATH"] = os.pathsep.join(path)
        return found


# ---- commands


def benchmark(name: str, *arguments: str, brief: Sequence[str] | None = None) -> Command:
    """A program of this folder, with --device and --json."""

    def command(setting: Setting, folder: Path) -> Sequence[str]:
        given = brief if setting.is_brief and brief is not None else arguments
        own = [str(Path(__file__).with_name(f"{name}.py")), *given]
        return [sys.executable, *own, "--device", setting.device, "--json", str(folder / "found.json")]

    return command


def run(*arguments: str, brief: Sequence[str] = ("--ops", "relu"), needs: str = "") -> Command:
    """`torchstone run`, quick, of torch against itself. ``brief``: what is added where the run is to be short."""

    def command(setting: Setting, folder: Path) -> Sequence[str] | str:
        given = [*arguments, *(brief if setting.is_brief else ())]
        given += ["--backend", "aten", "--effort", "quick", "--device", setting.device, "--quiet"]
        if needs == "traces":
            if setting.traces is None:
                return "left out: give --traces"
            given += ["--suite", "torchbench", "--source", str(setting.traces)]
        return [sys.executable, "-m", "torchstone", "run", *given, "--output-dir", str(folder), "--run-id", "run"]

    return command


def kernelbench(*arguments: str, run_id: str, seconds: float) -> Command:
    """The run is kept in torchstone_runs/, where a later call goes on with it."""

    def command(setting: Setting, folder: Path) -> Sequence[str] | str:
        if setting.problems is None:
            return "left out: give --problems"
        own = ["--seconds", f"{seconds - KERNELBENCH_ENDING_SECONDS:.0f}", "--output-dir", str(KEPT), *arguments]
        own += ["--run-id", run_id, *(["--resume"] if (KEPT / run_id / "records.jsonl").exists() else [])]
        return benchmark("kernelbench", str(setting.problems), *own)(setting, folder)

    return command


def tests(setting: Setting, folder: Path) -> Sequence[str]:
    """Test files side by side: most time goes to compilers. What is timed takes turns on the device."""
    what = ["tests/test_errors.py", "-m", "not slow"] if setting.is_brief else ["tests/gpu", "-m", "gpu"]
    many = [] if setting.is_brief else ["--numprocesses", "5", "--dist", "loadfile", "-p", "no:benchmark"]
    # The rollouts are two lines of their own, and so are the tests that fill the memory.
    without = ["--ignore", "tests/gpu/test_gpu_rollouts.py", *(f"--deselect={name}" for name in MEMORY_TESTS)]
    return [sys.executable, "-m", "pytest", *what, *many, *without, "-vv", "--tb=short", "-o", f"cache_dir={folder}"]


def memory_tests(setting: Setting, folder: Path) -> Sequence[str] | str:
    """The tests that fill the device's memory, one after another and beside no other program."""
    if setting.device == "cpu":
        return "left out: needs a GPU"
    alone = ["-p", "no:xdist", "-p", "no:benchmark", "-o", f"cache_dir={folder}"]
    return [sys.executable, "-m", "pytest", *MEMORY_TESTS, "-m", "gpu", "-vv", "--tb=short", *alone]


def failed_tests(setting: Setting, folder: Path) -> Sequence[str] | str:
    """Those that failed beside others, alone: a test that looks at the clock or at memory may have been disturbed."""
    failed = setting.seen.get("tests", {}).get("failed", [])
    if not failed:
        return "none failed"
    chosen = failed[:MOST_FAILED_AGAIN]
    one_by_one = ["-p", "no:xdist", "-p", "no:benchmark"]
    return [sys.executable, "-m", "pytest", *chosen, "-m", "gpu or not gpu", "-vv", "--tb=short", *one_by_one]


def opened(setting: Setting, folder: Path) -> Sequence[str]:
    return [sys.executable, "-c", OPENED.format(device=setting.device)]


# ---- figures


def figures(measured: str, met: bool | None = None, **more: Any) -> Figures:
    return {"measured": measured, "met": met, **more}


def outcomes_of_tests(reading: Reading) -> Figures:
    """From the log as it was written line by line, so that a call that was cut counts what had ended."""
    outcomes: dict[str, str] = {}
    for line in reading.log.splitlines():
        found = re.search(r"(tests/\S+?::.*?) (PASSED|FAILED|ERROR|SKIPPED)", line)
        beside = re.search(r"\] (PASSED|FAILED|ERROR|SKIPPED) (tests/\S+?::.*?)\s*$", line)
        if beside is not None:
            outcomes[beside[2]] = beside[1]
        elif found is not None:
            outcomes[found[1]] = found[2]
    counts = Counter(outcomes.values())
    failed = [name for name, outcome in outcomes.items() if outcome in ("FAILED", "ERROR")]
    known = re.findall(r"/ (\d+) selected|(\d+) workers \[(\d+) items?\]|collected (\d+) items?", reading.log)
    of = max((int(number) for numbers in known for number in numbers if number), default=len(outcomes))
    words = f"{counts['PASSED']} passed, {len(failed)} failed, {counts['SKIPPED']} skipped of {of}"
    met = None if reading.code is None and not failed else reading.code == 0
    return figures(words, met, failed=failed, counts=counts)


def plain(reading: Reading) -> Figures:
    return figures(f"{reading.seconds:.2f} s", None, seconds_taken=reading.seconds)


def first_record(limit: float) -> Callable[[Reading], Figures]:
    def read(reading: Reading) -> Figures:
        bare = reading.setting.seen["import torch"]["seconds_taken"]
        first = min(record.finished_unix_ns for record in reading.records) / 1e9 - reading.began_unix_seconds
        words = f"{first:.2f} s, {first - bare:.2f} s more than import and device"
        return figures(words, first - bare <= limit, first_seconds=first, bare_seconds=bare)

    return read


def latency(reading: Reading) -> Figures:
    told = reading.told
    evaluate = statistics.median(told["evaluate"])
    check = statistics.median(told["check"]) if "check" in told else None  # it may have been cut before that
    words = (
        f"evaluate {evaluate:.2f} s, check {'?' if check is None else f'{check:.2f}'} s (first {told['first']:.1f} s)"
    )
    return figures(words, None if check is None else evaluate <= 1.5 and check <= 0.6, told=told)


def throughput(reading: Reading) -> Figures:
    ours = reading.told["torchstone"]
    whole, steady, spread = (ours[n] for n in ("per_minute", "per_minute_once_started", "speedup_half_width"))
    wrong = sum(ours["wrong_verdicts"].values())
    words = f"{whole:.0f} a minute, {steady:.0f} once started, {wrong} wrong, ±{spread:.2%}"
    return figures(words, whole >= 200 and steady >= 250 and not wrong and not spread > 0.02, told=reading.told)


def generation(reading: Reading) -> Figures:
    told = reading.told
    utilization = told["utilization_percent"]
    words = f"{told['per_minute']:.0f} a minute, judge busy {told['busy_share']:.0%}, total over the longer "
    words += f"{told['ratio']:.2f}, misjudged {len(told['misjudged'])}"
    words += "" if utilization is None else f", device busy {utilization:.0f} %"
    return figures(words, told["ratio"] <= 1.2 and not told["misjudged"], told=told)


def rollouts(reading: Reading) -> Figures:
    told = reading.told
    hourly, used = told["rewards_per_hour_projected"], told["gpu_utilisation_percent"]
    words = f"{hourly} an hour ({told['rewards']} in {told['seconds']:.0f} s), faults {len(told['faults'])}"
    words += "" if used is None else f", device busy {used:.0f} %"
    return figures(words, hourly >= 12_000 and not told["faults"], told=told)


def repeated(reading: Reading) -> Figures:
    told = reading.told
    share = told["reward_deviation_share"]
    words = f"{share:.2%} of the reward, {told['repeats']} times, mean {told['reward_mean']:.3f}"
    return figures(words, share <= 0.015 and not told["faults"], told=told)


def problems(limit_seconds: float) -> Callable[[Reading], Figures]:
    def read(reading: Reading) -> Figures:
        told = reading.told
        verdicts, left_out = told["verdicts"], len(told["left_out"])
        known = sum(verdicts.values()) + left_out
        words = ", ".join(f"{count} {kind}" for kind, count in verdicts.items())
        words = f"{words}, {left_out} left out; {known} of {told['problems']} in {told['seconds']:.0f} s"
        wrong = sum(count for kind, count in verdicts.items() if kind not in ("agrees", "unsupported"))
        met = False if wrong else told["seconds"] <= limit_seconds if known == told["problems"] else None
        return figures(words, met, told=told)

    return read


def agreement(limit_seconds: float | None = None, results: str = "") -> Callable[[Reading], Figures]:
    """All cases agree, or torch lacks them; in this time; with results that came to the judge in this way."""

    def read(reading: Reading) -> Figures:
        records = reading.records
        counts = Counter(type(record.verdict).__name__ for record in records)
        fine = all(isinstance(record.verdict, Agrees | Unsupported) for record in records)
        ways = Counter(record.isolation.results for record in records if isinstance(record.verdict, Agrees))
        words = ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f" in {reading.seconds:.1f} s"
        words += f", results {dict(ways)}" if results else ""
        met: bool | None = bool(records) and fine and (not results or set(ways) == {results})
        if met and reading.code is None:
            met = None
        elif met and limit_seconds is not None:
            met = reading.seconds <= limit_seconds
        return figures(words, met, counts=counts)

    return read


def per_case(judge: Callable[[Figures], bool]) -> Callable[[Reading], Figures]:
    """Seconds of a run and of its cases, and how wide the intervals are."""

    def read(reading: Reading) -> Figures:
        records = reading.records
        ended = sorted(record.finished_unix_ns / 1e9 for record in records)
        times = [(r, timing(r.measurement)) for r in records if isinstance(r.measurement, Measurement)]
        tiny = [_own_seconds(record) for record, found in times if found.reference_ns <= TINY_NS]
        widths = [_half_width(found) for _, found in times if found.speedup is not None]
        stages: Counter[str] = Counter()
        for record in records:
            stages.update(record.stage_seconds)
        found = figures(
            "",
            cases=len(records),
            seconds_taken=reading.seconds,
            first_seconds=ended[0] - reading.began_unix_seconds,
            per_case_seconds=(ended[-1] - ended[0]) / max(1, len(records) - 1),
            tiny_seconds=statistics.median(tiny) if tiny else None,
            half_width=statistics.median(widths) if widths else None,
            verdicts=Counter(type(record.verdict).__name__ for record in records),
            stage_seconds={name: round(seconds, 2) for name, seconds in stages.most_common()},
        )
        found["measured"] = (
            f"{len(records)} cases in {reading.seconds:.1f} s, first after {found['first_seconds']:.1f} s"
        )
        found["measured"] += f", {found['per_case_seconds']:.2f} s a case"
        found["measured"] += f", tiny {found['tiny_seconds'] * 1e3:.0f} ms" if tiny else ""
        found["measured"] += f", ±{found['half_width']:.2%}" if widths else ""
        fine = all(isinstance(record.verdict, Agrees | Unsupported) for record in records)
        found["measured"] += "" if fine else f", {dict(found['verdicts'])}"
        found["met"] = fine and reading.code is not None and judge(found)
        return found

    return read


def _own_seconds(record: Record) -> float:
    return sum(seconds for stage, seconds in record.stage_seconds.items() if stage != "wait")


def _half_width(found: Timing) -> float:
    assert found.speedup is not None
    return (found.speedup.high - found.speedup.low) / 2 / found.speedup.ratio


def redteam(reading: Reading) -> Figures:
    told = json.loads(reading.log[reading.log.index('{"exit_code"') :].splitlines()[0])
    kinds = Counter((each["kind"], each["status"]) for each in told["findings"])
    words = ", ".join(f"{count} {kind}: {status}" for (kind, status), count in sorted(kinds.items()))
    return figures(words, told["exit_code"] == 0, findings=told["findings"])


def false_alarms(reading: Reading) -> Figures:
    found = re.search(r"(\d+) honest judgements, (\d+) refused, worst error [\d.]+ of its bound", reading.log)
    assert found is not None, "no summary"
    return figures(found[0], found[2] == "0")


def plan_costs(reading: Reading) -> Figures:
    found = re.search(r"\d+ cases, effort .*", reading.log)
    assert found is not None, "no summary"
    return figures(found[0], None, tables=reading.log[found.start() :])


def precision(reading: Reading) -> Figures:
    told: Any = reading.told
    rows = [row for row in told if "bias" in row]  # the others have work added
    worst = max(abs(row["bias"]) for row in rows)
    spreads = [row["mean_spread"] / row["spread"] for row in rows if row["spread"]]
    holds = statistics.fmean(row["holds"] for row in rows)
    words = f"{len(rows)} kernels: bias at most {worst:.2%}, spread {min(spreads):.1f} times smaller or more, "
    words += f"{holds:.0%} of intervals hold 1"
    return figures(words, worst <= 0.005 and holds >= 0.92, told=told)


# ---- the lines


_OPINFO = run("--suite", "opinfo", "--dtype", "bfloat16", "--no-measure", "--judges", "15")
_RELU = ("--suite", "smoke", "--ops", "relu", "--no-measure")

LINES = (
    Line(1, "import torch", "22", "a bare import with an opened device", "", "", 40, opened, plain, True),
    Line(1, "first record", "22", "start of a run until its first record", "", "2 s after that", 30,
         run(*_RELU), first_record(2.0), True),
    Line(1, "ten judges", "22", "the same with ten judges", "", "4 s after that", 30,
         run("--suite", "smoke", "--no-measure", "--judges", "10"), first_record(4.0)),
    Line(1, "latency", "22", "later evaluate and check of relu in one process", "9 to 10.5 s", "1.5 s; 0.6 s", 100,
         benchmark("latency", "--repeats", "5", brief=("--repeats", "1", "--judges", "1")), latency),
    Line(1, "throughput", "22", "102 Triton kernels", "105 to 131 a minute, 155 to 160 once started",
         "200, 250 once started, 0 wrong, ±2 %", 80,
         benchmark("throughput", "--kernels", "102", "--judges", "10", "--peer-kernels", "9",
                   brief=("--kernels", "6", "--judges", "1")),
         throughput),
    Line(1, "copied", "24", "smoke without CUDA IPC", "never run", "all agree, all copied", 50,
         run("--suite", "smoke", "--results", "copied", "--no-measure", "--judges", "4"), agreement(None, "copied")),
    Line(1, "generation", "23", "ten operators, scripted Triton", "never run", "total under 1.2, none misjudged", 100,
         benchmark("generation", brief=("--attempts", "1", "--latency", "0.1")), generation),
    Line(2, "40 traces", "22", "40 trace cases, quick, 1 judge", "63 s", "15 s; tiny 150 ms", 70,
         run("--sample", "40", needs="traces"),
         per_case(lambda f: f["seconds_taken"] <= 15 and (f["tiny_seconds"] or 0) <= 0.15)),
    Line(2, "400 traces", "22", "400 trace cases, 8 judges", "1.4 s a case", "0.3 s a case, ±3 %", 170,
         run("--sample", "400", "--judges", "8", needs="traces"),
         per_case(lambda f: f["per_case_seconds"] <= 0.3 and (f["half_width"] or 0) <= 0.03)),
    Line(2, "redteam", "21, 22", "corpus of cheats and honest kernels", "31 cheats stopped, 10 honest agree",
         "the same", 180, lambda setting, folder: [sys.executable, "-m", "torchstone", "redteam", "--device",
                                                   setting.device, "--json"], redteam),
    Line(2, "opinfo", "22", "opinfo bfloat16, empty caches", "176 s", "90 s", 190, _OPINFO, agreement(90.0)),
    Line(2, "opinfo again", "22", "the same with full caches", "90 s", "60 s", 100, _OPINFO, agreement(60.0)),
    Line(3, "rollouts", "24", "Triton rollouts, a third broken, a third wrong, one case each", "never run",
         "12 000 an hour", 150,
         benchmark("rollouts", "--rollouts", "3000", "--seconds", "100", "--judges", "10", "--largest", "1",
                   brief=("--rollouts", "3", "--judges", "1", "--check-only", "--largest", "1")), rollouts),
    Line(3, "one reward", "24", "the same kernel 50 times, cache off", "never run", "1.5 % or less", 120,
         benchmark("rollouts", "--repeat", "50", "--judges", "1",
                   brief=("--repeat", "2", "--judges", "1", "--largest", "1")), repeated),
    Line(3, "kernelbench check", "22", "KernelBench level 1, nothing timed", "2 prepared in 280 s", "480 s", 200,
         kernelbench("--no-measure", "--judges", "2", run_id="on_device_check", seconds=200), problems(480.0),
         keeps_cache=True),
    Line(3, "false alarms", "21, 22", "honest kernels", "0 of 728 refused", "0 refused", 40,
         lambda setting, folder: [sys.executable, "-m", "judging.false_alarms", "1", setting.device], false_alarms,
         imports_tests=True),
    Line(3, "plan costs", "21", "milliseconds of a check, and of each plan", "", "half of before", 60,
         lambda setting, folder: [sys.executable, str(Path(__file__).with_name("plans.py")), "cost", "--device",
                                  setting.device, *(["--source", str(setting.traces)] if setting.traces else [])],
         plan_costs),
    Line(4, "tests", "20 to 24", "tests/gpu", "", "all pass", 360, tests, outcomes_of_tests, True),
    Line(4, "memory tests", "22", "tests that fill the device's memory, alone", "", "all pass", 60, memory_tests,
         outcomes_of_tests),
    Line(4, "failed tests", "20 to 24", "those that failed, one after another", "", "all pass", 130,
         failed_tests, outcomes_of_tests),
    Line(0, "kernelbench", "22", "KernelBench level 1", "2 prepared in 280 s", "900 s in two calls", 540,
         kernelbench("--judges", "2", run_id="on_device", seconds=540), problems(900.0), keeps_cache=True),
    Line(0, "all rollouts", "24", "the same on all cases of relu", "never run", "12 000 an hour", 360,
         benchmark("rollouts", "--rollouts", "3000", "--seconds", "300", "--judges", "10"), rollouts),
    Line(0, "precision", "22", "torch against itself, beside do_bench", "bias at most 0.28 %", "0.5 %", 240,
         lambda setting, folder: [sys.executable, str(Path(__file__).with_name("precision.py")), "--repeats", "5",
                                  "--injected-repeats", "2", "--json", str(folder / "found.json")], precision),
    Line(0, "truth", "22", "device times beside CUPTI and Nsight Compute", "within 2.5 % of CUPTI", "5 %", 300,
         lambda setting, folder: [sys.executable, str(Path(__file__).with_name("truth.py")), "--json",
                                  str(folder / "found.json")], plain),
)  # fmt: skip
