"""`weave doctor`: whether this environment has what weave needs, and what to do where it has not.

It looks at what is installed and asks torch what it can do. It starts nothing: no process group, no CUDA context.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import weave

# What weave can't do without, from which version on (a test compares this with pyproject.toml), and what is good to have.
NEEDED = {"torch": "2.9", "anyio": "4.11", "pluggy": "1.5", "structlog": "24.1", "pyzmq": "26", "msgspec": "0.19"}
WELCOME = ("trio", "numpy", "transformers", "safetensors", "tokenizers", "matplotlib", "rich")

# What PyPI's other `weave` defines at its top, and weave never will.
THEIRS = ("init", "op", "publish")
APART = (
    "the two install the same import folder, so each breaks the other: give one of them an environment of its own, or "
    "`pip uninstall weave weave-dataflow` and then `pip install weave-dataflow`"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.epilog = "exit status: 0 all is well; 1 something is broken, and the report says what to do."


def main(args: argparse.Namespace) -> int:
    """Print the report; 1 where something is broken."""
    report = examine()
    print(json.dumps(report, indent=2) if args.json else "\n".join(_text(report)))
    return 1 if report["problems"] else 0


def examine() -> dict[str, Any]:
    """Everything that the report says. `problems` are pairs of `what` and `do`."""
    problems: list[dict[str, str]] = []

    def broken(what: str, do: str) -> None:
        problems.append({"what": what, "do": do})

    folder = Path(weave.__file__ or "").parent
    report: dict[str, Any] = {
        "weave": {"version": getattr(weave, "__version__", "?"), "folder": str(folder)},
        "python": {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()},
        "packages": {name: version_of(name) for name in (*NEEDED, *WELCOME)},
    }
    for name, least in NEEDED.items():
        has = report["packages"][name]
        if has is None or _numbers(has) < _numbers(least):
            broken(f"{name} {has or 'is missing'}: weave needs {least} or newer", f'pip install "{name}>={least}"')
    others = list(other_weave(folder, vars(weave)))
    report["other_weave"] = others
    if others:
        broken(f"PyPI's other `weave` is in this environment: {'; '.join(others)}", APART)
    try:
        report.update(_torch())
        report["runs"] = None
    except Exception as error:  # half an installation raises nearly anything
        broken(f"torch can't be used: {type(error).__name__}: {error}", "install torch anew, as pytorch.org says")
        report.update(devices={}, torch={}, runs="not tried")
    if not report["runs"]:
        report["runs"] = _a_graph()
        if report["runs"] != "ok":
            broken(f"a small graph does not run: {report['runs']}", "this is weave's fault: please report it")
    report["plugins"] = _plugins(broken)
    report["problems"] = problems
    return report


def version_of(distribution: str) -> str | None:
    """The installed version, `None` where it is not installed."""
    try:
        return metadata.version(distribution) or None
    except Exception:  # not there, or what is left of it can't be read
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0])[:3])


def other_weave(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Signs of PyPI's other `weave`: its metadata, its names in the imported module, files of its in the import folder."""
    there = version_of("weave")
    if there is not None:
        yield f"the distribution weave {there} is installed"
    theirs = sorted(set(THEIRS) & set(names))
    if theirs:
        yield f"weave/__init__.py is not weave-dataflow's: it has {', '.join(theirs)}"
    try:
        brought = [file for file in metadata.files("weave-dataflow") or () if file.parts[0] == "weave"]
        ours = {file.parts[1] for file in brought if Path(file.locate()).is_relative_to(folder)}
    except Exception:
        ours = set()
    if not ours:  # imported from a checkout, where nobody else installs
        return
    strangers = [
        entry.name
        for entry in folder.iterdir()
        if entry.name not in ours and (entry.suffix == ".py" or _is_package(entry))
    ]
    if strangers:
        yield f"{folder} has {', '.join(sorted(strangers)[:5])}, which weave-dataflow did not bring"


def _is_package(folder: Path) -> bool:
    return folder.is_dir() and folder.name != "__pycache__" and any(folder.glob("*.py"))


def _torch() -> dict[str, Any]:
    import torch
    from torch import distributed

    from weave.engine.options import RunOptions

    devices: dict[str, Any] = {"cpu": {"cores": RunOptions().workers, "torch_threads": torch.get_num_threads()}}
    for kind in ("cuda", "xpu", "mps"):
        module = getattr(torch, kind)
        devices[kind] = module.device_count() if module.is_available() else 0
    built = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    there = distributed.is_available()
    return {
        "devices": devices,
        "torch": {
            "built_for": {kind: version for kind, version in built.items() if version},
            "autocast": [
                kind for kind in devices if (kind == "cpu" or devices[kind]) and torch.amp.is_autocast_available(kind)
            ],
            "distributed": {
                "available": there,
                "gloo": there and distributed.is_gloo_available(),
                "nccl": there and distributed.is_nccl_available(),
            },
        },
    }


def _a_graph() -> str:
    """Capture inside a module and call an async function, called and awaited, without any plugin."""
    try:
        import anyio
        from torch import nn

        from weave.core import ExternalTarget, FunctionTarget, ModuleTarget, Needle
        from weave.plugins.plugin_set import PluginSet

        async def double(value: int) -> int:
            return 2 * value

        caller, net = ExternalTarget(), ModuleTarget("net", nn.Sequential(nn.Identity(), nn.Identity()))
        function = FunctionTarget("double", double)
        stitched = (
            Needle()
            .stitch(caller.input("x"), net.input(""))
            .stitch(net.output("0"), function.input())
            .stitch(function.output(), caller.output("y"))
            .knot(plugins=PluginSet())
        )
        got = stitched({"x": 2}, {})["y"], anyio.run(stitched.run, {"x": 3}, {})["y"]
        return "ok" if got == (4, 6) else f"it gave {got} instead of (4, 6)"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _plugins(broken: Any) -> dict[str, Any]:
    from weave.plugins.finding import ALLOW, DENY, STRICT

    try:
        from weave.builtin import builtin_records
        from weave.cli.plugins import notes_on
        from weave.plugins.loader import installed

        records = installed()
        notes = notes_on([*builtin_records(), *records])
    except Exception as error:
        broken(f"plugins can't be looked for: {type(error).__name__}: {error}", "see the problems above")
        return {}
    for record in records:
        if record.status == "failed":
            broken(
                f"the plugin {record.owner} could not be loaded: {record.why}",
                f"`weave plugins check` shows where; WEAVE_DISABLE_PLUGINS={record.name} leaves it out",
            )
    for why in dict.fromkeys(why for said in notes.values() for why in said):
        broken(why, "leave out all but one: WEAVE_DISABLE_PLUGINS=NAME,...")
    return {
        **{
            status: [record.owner for record in records if record.status == status]
            for status in ("loaded", "failed", "disabled")
        },
        "remarks": [f"{record.owner}: {remark}" for record in records for remark in record.remarks],
        "environment": {key: os.environ[key] for key in (ALLOW, DENY, STRICT) if key in os.environ},
    }


def _text(report: Mapping[str, Any]) -> Iterator[str]:
    python, devices, torch, plugins = (report[key] for key in ("python", "devices", "torch", "plugins"))
    yield f"weave    {report['weave']['version']}, {report['weave']['folder']}"
    yield f"python   {python['version']}, {python['executable']}, {python['platform']}"
    has = {name: version or "missing" for name, version in report["packages"].items()}
    yield "needs    " + ", ".join(f"{name} {has[name]}" for name in NEEDED)
    yield "extras   " + (", ".join(f"{name} {has[name]}" for name in WELCOME if has[name] != "missing") or "none")
    if devices:
        cpu = devices["cpu"]
        more = [f"{kind} {count}" if count else f"no {kind}" for kind, count in devices.items() if kind != "cpu"]
        yield f"devices  {cpu['cores']} cores ({cpu['torch_threads']} threads of torch's), {', '.join(more)}"
        built = ", ".join(f"{kind} {version}" for kind, version in torch["built_for"].items()) or "the CPU"
        groups = [f"{'' if on else 'no '}{kind}" for kind, on in torch["distributed"].items() if kind != "available"]
        yield f"torch    built for {built}; autocast on {', '.join(torch['autocast'])}; distributed: {', '.join(groups)}"
    yield f"a graph  {report['runs']}"
    states = [f"{len(plugins[state])} {state}" for state in ("loaded", "failed", "disabled") if plugins.get(state)]
    yield f"plugins  {', '.join(states) or 'none'}"
    for remark in plugins.get("remarks", ()):
        yield f"         {remark}"
    for variable, value in plugins.get("environment", {}).items():
        yield f"         {variable}={value}"
    yield "" if report["problems"] else "all is well"
    for number, problem in enumerate(report["problems"], 1):
        yield f"problem {number}: {problem['what']}"
        yield f"  what to do: {problem['do']}"
