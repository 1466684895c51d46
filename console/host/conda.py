"""The environment variables that `conda activate` sets, without a shell that runs it."""

from __future__ import annotations

import os
from pathlib import Path


def activated(prefix: str, path: str) -> dict[str, str]:
    """PATH with the environment's programs first, and the variables that builds look at.

    CUDA_HOME is set where the environment has an nvcc of its own. Scripts in its
    `etc/conda/activate.d` are not run. Empty without a prefix.
    """
    if not prefix:
        return {}
    made = {"PATH": f"{prefix}/bin:{path}", "CONDA_PREFIX": prefix,
            "CONDA_DEFAULT_ENV": Path(prefix).name}  # fmt: skip
    if os.access(f"{prefix}/bin/nvcc", os.X_OK):
        made["CUDA_HOME"] = prefix
    return made
