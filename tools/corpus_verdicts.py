"""Write the verdict of every red-team fixture on the CPU, a line for each, to compare two versions of the code.

python tools/corpus_verdicts.py before.txt                   # the whole corpus: some five minutes
python tools/corpus_verdicts.py after.txt --only ID,ID
diff before.txt after.txt
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="the file to write")
    parser.add_argument("--only", help="ids of fixtures, with commas between them")
    given = parser.parse_args()
    only = ["--only", given.only] if given.only else []
    command = [sys.executable, "-m", "torchstone", "redteam", "--device", "cpu", "--json", *only]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    answer = json.loads(done.stdout)
    findings = answer["findings"]
    lines = sorted(f"{each['fixture']} {each['case']} {each['verdict']} {each['status']}" for each in findings)
    given.target.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} verdicts in {given.target}; all as expected: {'no' if answer['exit_code'] else 'yes'}.")


if __name__ == "__main__":
    main()
