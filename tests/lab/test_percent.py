import pytest

from minivllm.lab.percent import parse

SOURCE = """\
# %% [markdown]
# # Title
#
# A line.

# %%
x = 1


# %% tags=["nbval-ignore-output"]
# reason: a clock
print(x)
# %%
"""


def test_a_source_is_read_into_cells():
    assert [tuple(cell) for cell in parse(SOURCE)] == [
        ("markdown", [], "# Title\n\nA line."),
        ("code", [], "x = 1"),
        ("code", ["nbval-ignore-output"], "# reason: a clock\nprint(x)"),
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = 1\n# %%\n", "line 2: text before the first cell: 'x = 1'"),
        ("# %% [markdown]\nx = 1\n", "line 2: a markdown cell holds comments only, not 'x = 1'"),
        ("# %% [raw]\n", "line 1: '# %% \\[raw\\]'; allowed"),
        ("# %% title\nx", "line 1: '# %% title'; allowed"),
    ],
)
def test_what_the_format_does_not_allow_is_named_with_its_line(source, complaint):
    with pytest.raises(ValueError, match=complaint):
        list(parse(source))


@pytest.mark.parametrize("source", ["", "\n\n", "# %%\n"])
def test_an_empty_source_has_no_cells(source):
    assert list(parse(source)) == []
