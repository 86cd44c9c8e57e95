"""Running one `nn.Module` while capturing and overriding inside it."""

from weave.graph.args import InputArgs
from weave.graph.ports import passes_through
from weave.passage.overrides import PassageInputOverrides, PassageOutputOverrides
from weave.passage.regions import must_finish

__all__ = ["InputArgs", "PassageInputOverrides", "PassageOutputOverrides", "must_finish", "passes_through"]
