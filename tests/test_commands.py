"""`python -m minivllm` as a user types it: answers, reports, and one line on misuse."""

import io
import json
import os
import subprocess
import sys

import pytest

from minivllm.__main__ import main
from minivllm.commands import chat


@pytest.fixture(autouse=True)
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_chat_answers_one_prompt(capsys):
    question = "What is the capital of France?"
    assert main(["chat", "--model", "packaged", "--prompt", question, "--temperature", "0", "--max-tokens", "24"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "The capital of France is Paris.\n"
    assert "prompt 37 tokens, 0 of them cached" in printed.err and "stop]" in printed.err


def test_chat_goes_on_from_turn_to_turn_and_every_turn_reuses_the_last(capsys, monkeypatch):
    said = "Say hello.\n/help\nAnd goodbye.\n/reset\nSay hello.\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    assert main(["chat", "--model", "packaged", "--temperature", "0", "--max-tokens", "6"]) == 0
    printed = capsys.readouterr()
    cached = [
        int(line.split(" of them")[0].split(", ")[-1]) for line in printed.err.splitlines() if " of them cached" in line
    ]
    assert cached[0] == 0 and cached[1] >= 32 and cached[2] == 32
    assert chat.HELP in printed.err


def test_verbose_tells_every_event_in_words(capsys, caplog):
    with caplog.at_level("INFO", logger="minivllm.events"):
        assert main(["chat", "--model", "packaged", "--prompt", "Hi", "--max-tokens", "2", "--verbose"]) == 0
    assert any("A takes block 0" in message for message in caplog.messages)
    assert any("A is done after 2 tokens" in message for message in caplog.messages)


def test_doctor_reports_as_text_and_as_json(capsys):
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("ready\n")
    main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["kernels"]["attention"] == "agrees" and report["model"]["found"]


def test_experiments_are_listed_run_and_written(capsys, tmp_path):
    assert main(["experiment"]) == 0
    assert "kv-size" in capsys.readouterr().out
    file = tmp_path / "table.json"
    assert main(["experiment", "kv-size", "--json", str(file)]) == 0
    assert "GiB" in capsys.readouterr().out
    assert json.loads(file.read_text())


def test_bench_measures_the_engine(capsys, tmp_path):
    file = tmp_path / "bench.json"
    small = ["--num-blocks", "64", "--max-num-batched-tokens", "256", "--max-model-len", "256", "--json", str(file)]
    assert main(["bench", "latency", "--model", "packaged", "--batches", "1,2", "--context", "80", *small]) == 0
    assert "decode step:" in capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    assert [row["batch"] for row in rows if row["what"] == "decode step"] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chat", "--model", "no-such-model", "--prompt", "x"], "no model 'no-such-model'"),
        (["chat", "--model", "packaged", "--prompt", "x", "--block-size", "0"], "block_size is 0"),
        (["chat", "--model", "packaged", "--prompt", "x", "--temperature", "-1"], "temperature is -1.0"),
        (["experiment", "nothing"], "nothing"),
        (["bench", "latency", "--dummy-weights", "nothing"], "there are qwen3-0.6b"),
        (["bench", "accuracy"], "--text"),
        (["bench", "accuracy", "--text", "/"], "'/'"),
        (["bench", "latency", "--model", "packaged", "--device", "cpu:x"], "device is 'cpu:x'"),
        (["bench", "profile", "--model", "packaged", "--device", "cpu", "--num-blocks", "9"], "the kernels of a GPU"),
    ],
)
def test_misuse_ends_with_one_line_and_status_2(arguments, message, capsys):
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert message in lines[-1]
    assert lines[-1].startswith(f"minivllm {arguments[0]}:")


@pytest.mark.parametrize("command", [["experiment", "kv-size"], ["bench", "latency"]])
@pytest.mark.parametrize(("file", "message"), [("", "is a directory"), ("no/such.json", "there is no directory")])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(command, file, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json", str(tmp_path / file)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def command(*arguments, **settings):
    """The command in a process of its own, and that process."""
    return subprocess.Popen(
        [sys.executable, "-m", "minivllm", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings,
    )  # fmt: skip


def test_a_reader_that_leaves_ends_the_command_without_a_word():
    running = command("experiment", "kv-size", bufsize=0)
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 1
    running.stderr.close()


def test_the_bench_takes_sizes_that_the_device_can_do(monkeypatch, capsys):
    asked = {}

    def measured(llm, ceilings, **sizes):
        asked.update(sizes)
        return iter(())

    monkeypatch.setattr("minivllm.bench.engine.latency", measured)
    small = ["--model", "packaged", "--device", "cpu", "--num-blocks", "64"]
    assert main(["bench", "latency", *small]) == 0
    assert asked["batches"] == (1, 4)
    assert main(["bench", "latency", *small, "--batches", "2"]) == 0
    assert asked["batches"] == (2,)


@pytest.mark.parametrize(
    "arguments",
    [["--batches", "0"], ["--batches", "1,-1"], ["--batches", "1,x"], ["--longest", "16"], ["--repeats", "0"],
     ["--requests", "0"], ["--context", "-5"]],
)  # fmt: skip
def test_a_count_that_counts_nothing_is_refused_before_anything_is_measured(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "latency", *arguments])
    assert ended.value.code == 2
    assert "allowed: a whole number of" in capsys.readouterr().err.splitlines()[-1]


def test_kernels_are_not_measured_without_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["bench", "kernels"]) == 2
    assert "on a CUDA GPU" in capsys.readouterr().err


def test_the_comparison_with_transformers_is_between_equals():
    """The rate counts only if both write the same text from the same weights."""
    import torch

    from minivllm import LLM, SamplingParams
    from minivllm.bench.peer import to_transformers

    prompt = list(range(100, 130))
    with LLM("packaged", device="cpu", num_blocks=16, max_model_len=128) as llm:
        theirs = to_transformers(llm.engine.model)
        ours = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8, ignore_eos=True), use_tqdm=False)
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            found = theirs.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0
            )
    assert found[0, 30:].tolist() == ours[0].outputs[0].token_ids


def test_a_terminal_that_lacks_a_character_shows_another_one():
    code = "from minivllm.__main__ import main\ntry: main(['-h'])\nexcept SystemExit: print('caf\u00e9')"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=ascii_only, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("caf?\n")


def test_files_of_the_package_are_read_as_utf_8_wherever_it_runs():
    code = "from minivllm.lab.recorded import recorded; from minivllm.viz import bundle; recorded('h200-engine'); "
    code += "[bundle.module(name) for name in ('controls', 'hash_chains', 'ranks_view')]"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-X", "utf8=0", "-c", code], env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_steps_of_requests_that_do_not_fit_are_not_measured(capsys):
    few = ["--num-blocks", "8", "--max-model-len", "200", "--batches", "2", "--context", "60"]
    assert main(["bench", "latency", "--model", "packaged", *few]) == 2
    assert "2 requests of 60 tokens do not run side by side here" in capsys.readouterr().err
