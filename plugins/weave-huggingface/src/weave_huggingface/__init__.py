"""weave for Hugging Face transformers: models as targets whose ports go by role, and what joins them to other nodes.

    target      HuggingFaceTarget: a ModuleTarget that also knows `block.3.mlp`, `final_norm`, ...; loads models
    roles       where in a model those roles are, told from its structure
    hidden      adapters and reducers by name: `hf.hidden`, `hf.logits`, `hf.last_hidden_state`
    command     `weave hf-roles PATH`
    tokenizing  tokenize(tokenizer): a function target that makes a model's arguments from texts

This module is the plugin (entry point `huggingface` of the group `weave.plugins`). It is loaded at somebody's first knot,
who may have nothing to do with transformers, so nothing here imports transformers until a model is loaded.
"""

from weave_huggingface.command import weave_commands
from weave_huggingface.hidden import weave_adapters, weave_reducers
from weave_huggingface.roles import Ends
from weave_huggingface.target import HuggingFaceTarget
from weave_huggingface.tokenizing import tokenize

__version__ = "0.1.0"

__all__ = ["Ends", "HuggingFaceTarget", "tokenize", "weave_adapters", "weave_commands", "weave_reducers"]
