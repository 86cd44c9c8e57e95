"""How the documentation is built: `make docs`, warnings as errors, without a network."""

import importlib.metadata
from typing import Any

project = "weave"
author = "the authors of weave"
copyright = author
release = version = importlib.metadata.version("weave-dataflow")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"weave {release}"
html_copy_source = False
html_show_copyright = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp, .go"

default_role = "code"  # docstrings are plain text, with single backticks around code
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name for name in ("Call", "AnyInputReducer", "AnyOutputReducer", "Source")
}
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
napoleon_numpy_docstring = False

# Nitpicky: a name of weave's own that a docstring or a signature refers to has to be on the reference page. Other people's
# names would need their inventories, and so a network.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!weave\b).*"),
    (r"py:.*", r"weave\..*\.[A-Z]"),
]  # also type variables


def setup(app: Any) -> None:
    """Leave private bases out of what the reference says of a class."""
    app.connect("autodoc-process-bases", _public)


def _public(app: Any, name: str, cls: Any, options: Any, bases: list[type]) -> None:
    bases[:] = [base for base in bases if not base.__name__.startswith("_")]
