"""The browser's reducer against Python's replay: the same events must lead both to the same state, at every tick."""

import json
import random
import subprocess

import pytest
from playwright._impl._driver import compute_driver_executable

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.lab.ward import Case
from minivllm.metrics import Metrics
from minivllm.viz import bundle
from minivllm.viz.engine_view import EngineView

NODE, _ = compute_driver_executable()  # playwright brings one along
READ = """
import fs from "node:fs";
const { ticks, between, offset, low } = JSON.parse(fs.readFileSync(process.argv[2]));
const trace = new Trace(offset, low);
for (const tick of ticks) trace.append(tick);
for (const item of between) trace.between(item);
"""
STATES = """
const states = [], seen = (r) => [r.tokens, r.computed, r.cached, r.table];
for (let i = low; i <= trace.edge; i++) {
  const s = trace.at(i), { owners, fill } = s.owners();
  states.push({ tick: s.tick, running: s.running, waiting: s.waiting, free: s.free,
    blocks: s.ref.map((ref, b) => [ref, s.hash[b] ?? null, owners[b], fill[b]]),
    requests: Object.fromEntries([...s.running, ...s.waiting].map((id) => [id, seen(s.requests.get(id))])) });
}
console.log(JSON.stringify(states));
"""


def javascript(view, folder, report):
    source, data = folder / "reduce.mjs", folder / "trace.json"
    source.write_text(bundle.module("trace") + READ + report)
    track = view.track
    data.write_text(
        json.dumps({"ticks": track.told, "between": track.tail, "offset": track.offset, "low": int(track.late)})
    )
    done = subprocess.run([NODE, source, data], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def python_state(snapshot):
    live = [snapshot.request(r) for r in (*snapshot.running, *snapshot.waiting)]
    return {
        "tick": snapshot.tick,
        "running": list(snapshot.running),
        "waiting": list(snapshot.waiting),
        "free": list(snapshot.free),
        "blocks": [[b.ref, b.hash, list(b.owners), b.filled] for b in snapshot.blocks],
        "requests": {r.id: [r.tokens, r.computed, r.cached, list(r.table)] for r in live},
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("late", [False, True])
def test_the_browser_reduces_every_tick_to_what_python_replays(tmp_path, seed, late):
    rng = random.Random(seed)
    engine = Engine(EngineConfig(block_size=4, num_blocks=20, max_num_batched_tokens=12))
    view = None if late else EngineView(engine)
    prefix = [7, 8, 9, 10, 11, 12, 13, 14]
    for tick in range(70):
        if rng.random() < 0.3:
            own = [rng.randrange(50) for _ in range(rng.randrange(1, 14))]
            params = SamplingParams(max_tokens=rng.randrange(1, 20), temperature=0)
            engine.add(prefix[: rng.randrange(9)] + own, params)
        running = engine.snapshot().running
        if running and rng.random() < 0.05:
            engine.abort(rng.choice(running))
        if tick == 30:
            engine.reconfigure(block_size=8, num_blocks=14)
        if tick == 45:
            engine.reconfigure(policy="shortest-prompt")
        if late and tick == 20:
            view = EngineView(engine)
        engine.step()
    engine.add([1, 2, 3], SamplingParams(max_tokens=2))
    states = javascript(view, tmp_path, STATES)
    for tick, state in zip(range(view.track.first, view.edge + 1), states, strict=True):
        view.tick = tick
        assert state == python_state(view.snapshot), tick


def test_the_hit_rate_of_the_timeline_is_that_of_the_metrics(tmp_path):
    engine = Engine(EngineConfig(block_size=4, num_blocks=9))
    view, metrics = EngineView(engine), Metrics(engine)
    for last in range(3):
        engine.add([*range(9), last], SamplingParams(max_tokens=12, temperature=0))
        engine.step()
    engine.run()
    assert metrics.preemptions  # who starts again finds its own blocks, and that is no hit
    assert metrics.hits
    edge = javascript(view, tmp_path, "console.log(JSON.stringify(trace.total(trace.edge)))")
    assert (edge["hits"], edge["asked"]) == (metrics.hits, metrics.queried)


def test_books_told_anew_after_a_failure_do_not_change_when_somebody_came_or_finished(tmp_path):
    case = Case(10)  # it frees a block twice in its last tick
    view = EngineView(case.engine)
    case.run()
    report = "console.log(JSON.stringify([...trace.at(trace.edge).requests.values()]))"
    requests = {request["id"]: request for request in javascript(view, tmp_path, report)}
    assert {name: request["ended"] for name, request in requests.items() if name != "D"} == {"A": 8, "B": 8, "C": 22}
    assert requests["D"]["since"] == 22  # it ran until the failure
