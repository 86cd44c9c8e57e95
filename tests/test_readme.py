"""The README's example is the file that runs, and it does what the README says."""

import asyncio
import re
import runpy
import textwrap
from pathlib import Path

import pytest
import torch

from weave.remote import run_local

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_readme_shows_the_example() -> None:
    assert SNIPPETS[0] == (ROOT / "examples" / "distil_a_block.py").read_text()


def test_the_readmes_stream_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (stream, _) = SNIPPETS[1:]
    names = runpy.run_path(str(ROOT / "examples" / "distil_a_block.py"))
    capsys.readouterr()
    program = f"async def main(stitched, batches):\n{textwrap.indent(stream, '    ')}"
    exec(program, names)
    asyncio.run(names["main"](names["stitched"], [torch.randn(8, 16, 32) for _ in range(3)]))
    assert len(capsys.readouterr().out.split()) == 3


def test_the_readmes_ranks_train_as_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    def losses(rank: int) -> list[float] | None:
        names = dict(all_names)
        exec(SNIPPETS[2], names)
        outs = [names["stitched"]({"batch": batch}, {}) for batch in batches]
        return [out["loss"] for out in outs] if rank == 0 else None

    batches = [torch.randn(8, 16, 32) for _ in range(3)]
    alone = runpy.run_path(str(ROOT / "examples" / "distil_a_block.py"))
    wanted = [alone["stitched"]({"batch": batch}, {})["loss"] for batch in batches]
    all_names = runpy.run_path(str(ROOT / "examples" / "distil_a_block.py"))
    assert run_local(2, losses)[0] == wanted


def test_the_example_trains_its_student(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(ROOT / "examples" / "distil_a_block.py"))
    assert names["losses"][-1] < names["losses"][0] / 2
    assert "StitchedModule(3 nodes, 5 stitches: teacher, student, train" in capsys.readouterr().out


def test_what_the_readme_links_to_is_there() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]
