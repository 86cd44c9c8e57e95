"""What the server has imported that forks ranks. No threads: a fork has but one."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import anyio  # noqa: F401
import torch
import torch.distributed
import transformers.models.llama.modeling_llama  # noqa: F401
import trio  # noqa: F401

import weave
import weave.remote.codec
import weave.remote.meeting
import weave.remote.zmq_transport

torch.set_num_threads(1)
for name in weave.__all__:
    getattr(weave, name)
