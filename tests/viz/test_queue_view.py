"""The queue view: the queue it shows is the pool's own, and what is left of a request is what the cache would hit."""

import random
import re
from base64 import b64decode

import pytest

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.core.eviction import LRU
from minivllm.viz.queue_track import BACK, FRONT
from minivllm.viz.queue_view import QueueView


class Backwards(LRU):
    """An order of one's own: the youngest goes first."""

    def pop(self):
        return self._order.popitem()[0]

    def __iter__(self):
        return reversed(self._order)


def hittable(engine, request, had):
    """By brute force: how many of a request's first `had` blocks an equal prompt would find, block by block."""
    index = engine.scheduler.cache.index.blocks
    return next((at for at, digest in enumerate(request.hashes[:had]) if not index.get(digest)), had)


def everybody(engine):
    return [*engine.scheduler.requests.values(), *engine._finished.values()]


def agrees(view):
    engine = view.engine
    pool = engine.scheduler.cache.pool
    assert view.queue == tuple(pool)
    assert view.in_use == {block: ref for block, ref in enumerate(pool.ref) if ref}
    facts = (view.track.tail or view.track.told)[-1]["queue"]
    assert facts["size"] == len(view.queue)
    assert tuple(facts["front"]) == view.queue[: len(facts["front"])]
    assert not facts["back"] or tuple(facts["back"]) == view.queue[-BACK:]
    for request in everybody(engine):
        hit, had = view.left_of(request.id)
        if had or request.id in engine.scheduler.requests:  # what ended before the pool started over has nothing in it
            assert had >= request.num_published  # a preempted request starts over, what it left is still its own
        assert hit == hittable(engine, request, had), request.id


def wander(view, steps, seed):
    """Random traffic: shared beginnings, aborts, forks, changes of the order; every state is compared."""
    chance, engine = random.Random(seed), view.engine
    for _ in range(steps):
        if chance.random() < 0.4 and len(engine.scheduler.requests) < 6:
            head = [chance.randrange(2)] * chance.randrange(0, 24)
            tail = [chance.randrange(50) for _ in range(chance.randrange(1, 12))]
            engine.add(head + tail, SamplingParams(max_tokens=chance.randrange(1, 12), n=chance.choice((1, 1, 2))))
        if chance.random() < 0.03 and engine.scheduler.requests:
            engine.abort(chance.choice(list(engine.scheduler.requests)))
        if chance.random() < 0.01:
            view.change("eviction", chance.choice(view.orders))
        agrees(view)
        view.step()
        agrees(view)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eviction", [None, Backwards])
def test_the_queue_shown_is_the_pools_own_after_every_step(seed, eviction):
    engine = Engine(EngineConfig(block_size=4, num_blocks=20, max_num_batched_tokens=16), eviction=eviction)
    wander(QueueView(engine), 150, seed)


def test_going_back_shows_each_queue_as_it_was(scene):
    view = QueueView(scene.engine)
    seen = {0: (tuple(range(24)), {}, None, view.sentence)}
    scene.ask("Z", 21, 300, 5)
    scene.ask("A", 60, 500, 20)
    for tick in range(1, 18):
        view.step()
        seen[tick] = view.queue, view.in_use, view.left_of("Z"), view.sentence
    for tick in range(17, 0, -1):
        view.tick = tick
        assert (view.queue, view.in_use, view.left_of("Z"), view.sentence) == seen[tick]
    view.tick = 0
    assert (view.queue, view.in_use) == seen[0][:2]


def test_tails_go_first_so_the_start_of_a_prompt_stays_usable(scene):
    view = QueueView(scene.engine)
    scene.ask("Z", 21, 300, 5)
    view.step(6)
    assert view.left_of("Z") == (6, 6)
    scene.ask("B", 76, 500, 2)
    view.step(5)
    hit, had = view.left_of("Z")
    assert 0 < hit < had == 6
    left = view.track.told[-1]["queue"]["left"]
    assert [block is None for _, block in left["blocks"]] == [False] * hit + [True] * (had - hit)
    assert (left["who"], left["hit"], left["prompt"]) == ("Z", hit, False)


def test_what_is_behind_a_missing_block_cannot_be_hit():
    engine = Engine(EngineConfig(block_size=4, num_blocks=24, max_num_batched_tokens=16), eviction=Backwards)
    view = QueueView(engine)
    engine.add(list(range(300, 321)), SamplingParams(max_tokens=5, temperature=0), request_id="Z")
    view.step(6)
    engine.add(list(range(500, 576)), SamplingParams(max_tokens=2, temperature=0), request_id="B")
    view.step(5)
    assert view.left_of("Z") == (0, 6)
    assert any(block is not None for _, block in view.track.told[-1]["queue"]["left"]["blocks"])


def test_the_sentence_names_who_goes_first_and_what_went(scene):
    view = QueueView(scene.engine)
    scene.traffic()
    view.tick = 7
    assert view.sentence == (
        "Z ends and lets go of seven blocks. Eight blocks can be taken. 23 and 22 go first, they have no hash to lose. "
        "Then what Z left, tail first: 10, 9, 8, 7, 6 and 5."
    )
    view.tick = 8
    assert view.sentence.startswith("Five blocks of Z were evicted. One block can be taken.")
    view.tick = 11
    assert view.sentence == "No block can be taken: each one is referenced."
    view.tick = 12
    assert view.sentence.startswith("C is preempted and lets go of seven blocks.")


def test_a_change_of_the_order_empties_the_pool_at_the_edge_and_says_so(scene):
    view = QueueView(scene.engine)
    scene.traffic()
    view.tick = 5
    assert (view.order, view.orders) == ("lru", ["lru", "fifo"])
    view.handle({"type": "set", "name": "eviction", "value": "fifo"})
    assert (view.error, view.order, view.tick, view.in_use) == ("", "fifo", view.edge, {})
    assert view.queue == tuple(range(24))
    assert "the pool starts over" in view.sentence
    assert view.left_of("Z") == (0, 0)


def test_an_order_of_ones_own_can_be_left_and_chosen_again():
    view = QueueView(engine := Engine(EngineConfig(block_size=4, num_blocks=24), eviction=Backwards))
    assert (view.order, view.orders) == ("yours", ["lru", "fifo", "yours"])
    view.change("eviction", "lru")
    assert (view.order, type(engine.scheduler.cache.pool.cached)) == ("lru", LRU)
    view.change("eviction", "yours")
    assert (view.order, type(engine.scheduler.cache.pool.cached)) == ("yours", Backwards)


def test_what_is_not_allowed_is_refused_with_what_is(scene):
    view = QueueView(scene.engine)
    with pytest.raises(ValueError, match=r"block_size.*eviction"):
        view.change("block_size", 8)
    with pytest.raises(ValueError, match="'yours'; allowed: lru, fifo"):
        view.change("eviction", "yours")
    scene.ask("A", 9, 200, 4)
    with pytest.raises(ValueError, match="'Q' was here; there are A"):
        view.left_of("Q")
    with pytest.raises(ValueError, match="'contiguous'; only 'paged'"):
        QueueView(Engine(EngineConfig(kv_layout="contiguous")))


def test_a_view_that_comes_late_knows_whose_content_is_there(scene):
    scene.ask("Z", 21, 300, 5)
    scene.engine.run()
    scene.ask("B", 40, 500, 4)
    scene.engine.step()
    view = QueueView(scene.engine)
    agrees(view)
    assert view.left_of("Z") == (6, 6)
    assert {tuple(home) for home in view.track.told[0]["queue"]["homes"].values()} == {("Z", i) for i in range(6)}
    wander(view, 40, 7)
    view.tick = view.first
    assert view.left_of("Z") == (6, 6)


def test_an_engine_that_turns_contiguous_has_no_queue(scene):
    view = QueueView(scene.engine)
    scene.traffic()
    scene.engine.reconfigure(kv_layout="contiguous", reservation="oracle", num_blocks=64)
    view.step()
    assert view.queue == ()
    assert "not a queue" in view.sentence
    assert view.static()["text/plain"]


def test_a_pool_of_2000_blocks_tells_the_ends_of_its_queue():
    engine = Engine(EngineConfig(block_size=4, num_blocks=2000, max_num_batched_tokens=512))
    view = QueueView(engine)
    for number in range(12):
        engine.add(list(range(1000 * number, 1000 * number + 300)), SamplingParams(max_tokens=3, temperature=0))
    seen = []
    for _ in range(12):
        view.step()
        agrees(view)
        seen.append(view.queue)
        facts = view.track.told[-1]["queue"]
        assert (len(facts["front"]), len(facts["back"])) == (FRONT, BACK)
    view.tick = 3
    assert view.queue == seen[2]
    assert len(view.static()["text/html"]) < 60_000


def test_the_snapshot_is_deterministic_and_says_the_sentence_and_the_queue(scene):
    view = QueueView(scene.engine, title="<i>free</i>")
    assert "24" in view.static()["text/plain"]
    scene.traffic()
    view.tick = 8
    plain, html = view.static().values()
    assert plain.startswith(f"Tick 8. {view.sentence}")
    assert "Free queue, front first (1): 5#" in plain
    assert "Left of Z, head first: 5 ! ! ! ! !; 1 of 6 blocks can be hit" in plain
    assert plain.isascii()
    svg = b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()
    assert "&lt;i&gt;free&lt;/i&gt;" in svg
    assert "1 of 6 blocks can be hit" in svg
    assert view.static() == view.static()
    assert repr(view) == f"QueueView(engine {scene.engine.number}, tick 8 of 14)"


def test_the_names_of_requests_stay_text(scene):
    view = QueueView(scene.engine)
    scene.ask("<b>x</b>", 21, 300, 5)
    view.step(7)
    assert "<b>" not in b64decode(re.search(r"base64,([^\"]+)", view.static()["text/html"])[1]).decode()
    assert "<b>" not in view.static()["text/html"]
