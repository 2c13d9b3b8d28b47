"""What is sent to the browser: local, one module, every glyph drawn as a path."""

import re

import pytest

from minivllm.viz import bundle
from minivllm.viz.glyphs import GLYPHS


def test_the_module_is_one_file_that_asks_the_network_for_nothing():
    module = bundle.module("engine_view")
    assert not re.search(r"^import ", module, re.MULTILINE)
    assert module.count("export default") == 1
    assert set(re.findall(r"https?://[\w./]+", module)) <= {"http://www.w3.org/2000/svg"}


def test_each_part_is_in_it_once_and_before_its_user():
    module = bundle.module("engine_view")
    assert module.count("class State") == module.count("class Trace") == 1
    assert module.index("class State") < module.index("class Trace")


def test_text_reaches_the_page_only_as_text():
    module = bundle.module("engine_view")
    assert set(re.findall(r"\.innerHTML = ([^;]+);", module)) <= {'GLYPHS[kind] || ""', "GLYPHS[kind]"}
    assert "insertAdjacentHTML" not in module


def test_every_glyph_that_is_named_exists():
    module = bundle.module("engine_view")
    named = set(re.findall(r'glyph\("(\w+)"', module)) | set(re.findall(r'icon\("(\w+)"', module))
    assert named <= set(GLYPHS)


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        bundle.module("nowhere")
