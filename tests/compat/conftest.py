"""The real client classes of the NVIDIA resiliency extension, from its public package."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.peers import leave_out
from tests.triage.conftest import data_dir, diagnosed, fleet

__all__ = ["data_dir", "diagnosed", "fleet"]
PACKAGE = "nvidia-resiliency-ext==0.7.0"
"""Its client modules are pure Python, so the wheel of any platform does."""
WHEEL = ("--only-binary=:all:", "--platform", "manylinux_2_39_x86_64", "--python-version", "3.12")


@pytest.fixture(scope="session")
def nvrx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Its modules. Skipped when the package can't be had; in CI that is an error."""
    folder = tmp_path_factory.mktemp("nvrx")
    why = _fetch(folder)
    if why:
        leave_out(f"{PACKAGE} can't be had: {why}")
    sys.path.insert(0, str(folder / "unpacked"))
    try:
        base = "nvidia_resiliency_ext"
        names = {
            "client": "services.smonsvc.attrsvc_client",
            "monitor": "services.smonsvc.monitor",
            "models": "services.smonsvc.models",
            "answers": "attribution.orchestration.client_response",
            "http": "attribution.orchestration.http_api",
        }
        yield SimpleNamespace(**{key: importlib.import_module(f"{base}.{name}") for key, name in names.items()})
    finally:
        sys.path.remove(str(folder / "unpacked"))


def _fetch(folder: Path) -> str:
    """Why the package isn't there; empty when it is. NVRX_WHEEL names a wheel that was fetched before."""
    wheel = os.environ.get("NVRX_WHEEL")
    if not wheel:
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            *WHEEL,
            "--dest",
            str(folder),
            PACKAGE,
        ]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return "not downloaded within two minutes"
        if done.returncode != 0:
            return (done.stderr.strip() or "pip failed").splitlines()[-1]
        wheel = str(next(folder.glob("*.whl")))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return ""


@pytest.fixture
def root(settings: Any, tmp_path: Path) -> Path:
    """The folder below which logs may be named."""
    folder = tmp_path / "logs"
    folder.mkdir()
    settings.FAULTLINE_NVRX_ROOT = str(folder)
    return folder
