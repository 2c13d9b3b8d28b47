"""`python -m minivllm bench`: throughput, latency, prefix, profile, accuracy, kernels; a line each, optionally as JSON."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHORTEST = 100  # tokens of the throughput workload's prompts and outputs
WHATS = ("throughput", "latency", "prefix", "profile", "peer", "accuracy", "kernels")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("what", choices=WHATS, nargs="+", help="what to measure; several run in one process")
    parser.add_argument("--model", help="hub name, directory or GGUF file; default: the best model at hand")
    parser.add_argument("--dummy-weights", metavar="SHAPE", help="a known shape with random weights: qwen3-0.6b")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--num-blocks", type=int)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--max-num-batched-tokens", type=int, default=16384)
    parser.add_argument("--kv-cache-dtype", default="auto", choices=("auto", "fp8"))
    parser.add_argument("--requests", type=_from(1), default=256, help="requests of the throughput workload")
    parser.add_argument(
        "--longest", type=_from(SHORTEST), default=1024, help="longest prompt and output of the throughput workload"
    )
    parser.add_argument(
        "--batches", default="1,16,64,256", type=_sizes, help="batch sizes of latency and profile, with commas"
    )
    parser.add_argument("--context", type=_from(1), default=640, help="context length of latency and profile")
    parser.add_argument("--text", metavar="FILE", help="real text for accuracy")
    parser.add_argument("--repeats", type=_from(1), default=3)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--no-overlap", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    rows: list[dict[str, Any]] = []
    if set(options.what) & {"throughput", "latency", "prefix", "profile", "peer"}:
        rows += _engine(options)
    if "accuracy" in options.what:
        rows += _accuracy(options)
    failed = 0
    if "kernels" in options.what:
        from minivllm.bench import kernels

        rows += kernels.report(kernels.ALL)
        failed = kernels.wrong(rows)
    if options.json:
        from minivllm.bench.where import where

        Path(options.json).write_text(json.dumps({"where": where(), "rows": rows}, indent=1), encoding="utf-8")
    return int(failed > 0)


def _engine(options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    from minivllm.bench import engine, peer, roofline
    from minivllm.bench.shapes import dummy_model
    from minivllm.llm import LLM, resolve_device

    device = resolve_device(options.device)
    began = time.perf_counter()
    model: Any = options.model
    if options.dummy_weights:
        dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
        model = dummy_model(options.dummy_weights, device, dtype)
    llm = LLM(
        model, device=device, dtype=options.dtype, block_size=options.block_size, num_blocks=options.num_blocks,
        max_model_len=options.max_model_len, max_num_batched_tokens=options.max_num_batched_tokens,
        enforce_eager=options.enforce_eager, async_scheduling=not options.no_overlap, kv_cache_dtype=options.kv_cache_dtype,
    )  # fmt: skip
    rows: list[dict[str, Any]] = [{"what": "start", "seconds": round(time.perf_counter() - began, 2)}]
    weights = llm.engine.model.weights.embed  # type: ignore[union-attr]
    ceilings = roofline.measure(device, weights.dtype)
    rows.append(
        {
            "what": "ceilings",
            "read GB/s": round(ceilings.read / 1e9),
            "matmul TFLOP/s": round(ceilings.matmul / 1e12, 2),
        }
    )
    for row in rows:
        print(_line(row), flush=True)
    for what in options.what:
        if what == "throughput":
            found = engine.throughput(
                llm, ceilings, requests=options.requests, longest=options.longest, repeats=options.repeats
            )
        elif what == "latency":
            found = engine.latency(llm, ceilings, batches=options.batches, context=options.context, steps=60)
        elif what == "prefix":
            found = engine.prefix(llm, cases=engine.PREFIX_CASES[: None if device.startswith("cuda") else 1])
        elif what == "peer":
            found = peer.compare(llm, repeats=options.repeats)
        elif what == "profile":
            found = (row for batch in options.batches for row in engine.profile(llm, batch, options.context))
        else:
            continue
        for row in found:
            print(_line(row), flush=True)
            rows.append(row)
    llm.close()
    return rows


def _accuracy(options: argparse.Namespace) -> list[dict[str, Any]]:
    from minivllm.bench.accuracy import accuracy
    from minivllm.llm import resolve_device

    if options.text is None:
        raise ValueError("accuracy needs --text FILE: a file of real text")
    rows = []
    for row in accuracy(options.model, Path(options.text).read_text(encoding="utf-8"), resolve_device(options.device)):
        print(_line(row), flush=True)
        rows.append(row)
    return rows


def _from(low: int) -> Callable[[str], int]:
    """What turns an argument into a whole number of `low` or more."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number of {low} or more")
        return int(text)

    return number


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_from(1)(size.strip()) for size in text.split(","))


def _line(row: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" if name != "what" else f"{value}:" for name, value in row.items())
