import subprocess
import sys
from pathlib import Path

import pytest

from minivllm.lab.reproducible import gpu_is_visible, settle


def test_settling_keeps_what_was_chosen_and_gives_a_home(monkeypatch, tmp_path):
    import os

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    settle(tmp_path)
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert Path(os.environ["MINIVLLM_HOME"]) == tmp_path


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_hidden_gpu_is_none(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert not gpu_is_visible()


def test_settling_comes_before_torch_and_triton():
    program = "import sys, minivllm.lab.reproducible; print({'torch', 'triton', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
