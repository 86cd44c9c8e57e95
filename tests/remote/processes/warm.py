"""What the server has imported that forks ranks. No threads: a fork has but one."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import anyio  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed  # noqa: E402
import transformers.models.llama.modeling_llama  # noqa: E402, F401
import trio  # noqa: E402, F401

import weave  # noqa: E402
import weave.remote.codec  # noqa: E402
import weave.remote.meeting  # noqa: E402
import weave.remote.zmq_transport  # noqa: E402, F401

torch.set_num_threads(1)
for name in weave.__all__:
    getattr(weave, name)
