"""Finds the C++ and CUDA compilers of this machine, without importing torch."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_cxx() -> str | None:
    """Path of the C++ compiler that CXX names, else of g++, c++ or clang++ on the PATH. None: there is none."""
    names = (os.environ.get("CXX"), "g++", "c++", "clang++")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def find_nvcc() -> str | None:
    """Path of nvcc: in CUDA_HOME or CUDA_PATH, on the PATH, in /usr/local/cuda, or in an NVIDIA Python package."""
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    packages = [str(path) for entry in sys.path if entry for path in sorted(Path(entry).glob("nvidia/*"))]
    folders = [*(f"{home}/bin" for home in homes), None, "/usr/local/cuda/bin", *(f"{path}/bin" for path in packages)]
    return next((found for folder in folders if (found := shutil.which("nvcc", path=folder))), None)
