from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

# Many small tensors: more threads would only take turns.
torch.set_num_threads(1)

# A machine that is busy with something else is no failure: neither time limits nor complaints about slow generation.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
