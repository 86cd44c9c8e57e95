"""Subcommands that plugins add: `weave_commands`.

weave's own words always mean weave's own. A plugin that claims one of them, or a word that another plugin claims too, is
refused that word, by a message that names both; its other words work.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from weave.cli import OWN


def refused(claims: Mapping[str, Any]) -> dict[str, str]:
    """Of `Registry.commands`: the words that can't be used, and why."""
    said = {}
    for name, owned in claims.items():
        owners = list(dict.fromkeys(owner for owner, _ in owned))
        if name in OWN:
            said[name] = f"the command {name!r} is weave-dataflow's own, and claimed by {' and '.join(owners)} too"
        elif len(owned) > 1:
            said[name] = (
                f"the command {name!r} is claimed by {' and '.join(owners)}: leave out all but one with "
                "WEAVE_DISABLE_PLUGINS=NAME,..."
            )
    return said


def list_all(parser: argparse.ArgumentParser, commands: Any) -> None:
    """Add what the help says of plugins' commands."""
    try:
        if not metadata.entry_points(group="weave.plugins"):
            return  # nothing is imported for the help alone
    except Exception:  # somebody's file of entry points can't be read: look more closely
        pass
    plugins = _plugins(parser, strict=False)
    claims = _registry(plugins).commands
    said = refused(claims)
    for name, owned in claims.items():
        if name not in said:
            owner, command = owned[0]
            commands.add_parser(name, help=f"{command.about}  [{owner}]".replace("%", "%%"))
    lines = [*said.values(), *(f"the plugin {r.owner} could not be loaded: {r.why}" for r in plugins.failed)]
    if lines:
        parser.epilog = "\n".join(["not usable:", *(f"  {line}" for line in lines)])


def add(word: str, parser: argparse.ArgumentParser, commands: Any) -> None:
    """Add the one command that is called, or end the program and say why it can't be."""
    from weave.plugins.loader import sentences

    plugins = _plugins(parser, strict=True)
    claims = _registry(plugins).commands
    said = refused(claims)
    if word in said:
        parser.error(said[word])
    if word not in claims:
        near = difflib.get_close_matches(word, [*OWN, *(name for name in claims if name not in said)], n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join([*OWN, *claims])}"
        broken = "; ".join(f"{record.owner}: {record.why}" for record in plugins.failed)
        more = f"Plugins that could not be loaded, and may bring it: {broken}" if broken else ""
        parser.error(sentences(f"no command is called {word!r}{hint}", more))
    for record in plugins.failed:
        print(
            f"weave: the plugin {record.owner} could not be loaded ({record.why}); `weave plugins check` shows more",
            file=sys.stderr,
        )
    owner, command = claims[word][0]
    sub = commands.add_parser(word, description=command.about)
    try:
        command.add_arguments(sub)
    except Exception as error:
        error.add_note(f"weave: raised by the arguments of the command {word!r} of the plugin {owner}")
        raise
    sub.set_defaults(weave_run=command.run)


def _plugins(parser: argparse.ArgumentParser, *, strict: bool) -> Any:
    """The installed plugins; that some failed is said by the command itself, in a line rather than a warning."""
    from weave.errors import PluginException, PluginWarning
    from weave.plugins.loader import installed
    from weave.plugins.plugin_set import PluginSet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        try:
            return PluginSet.installed()
        except PluginException as error:  # WEAVE_PLUGINS_STRICT
            if strict:
                parser.exit(1, f"weave: {error}\n")
            return PluginSet.of(installed())


def _registry(plugins: Any) -> Any:
    from weave.plugins.registry import Registry

    return Registry(plugins.records)
