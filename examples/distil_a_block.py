import torch
from torch import nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 128, batch_first=True)
teacher = nn.TransformerEncoder(layer, 4).requires_grad_(False)
student = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 32))  # shall do what the teacher's layer 2 does
optimizer = torch.optim.Adam(student.parameters(), 1e-2)


def train(got: torch.Tensor, wanted: torch.Tensor) -> float:
    loss = nn.functional.mse_loss(got, wanted)
    loss.backward(), optimizer.step(), optimizer.zero_grad()
    return loss.item()


caller, f = ExternalTarget(), FunctionTarget("train", train)
t, s = ModuleTarget("teacher", teacher), ModuleTarget("student", student)
stitched = (
    Needle()
    .stitch(caller.input("batch"), t.input(""))  # the caller's batch goes into the teacher,
    .stitch(t.input("layers.2"), s.input("", adapter="first"))  # what its layer 2 receives (no masks) into the student,
    .stitch(s.output(""), f.input())  # and both answers into train(got, wanted)
    .stitch(t.output("layers.2"), f.input())
    .stitch(f.output(), caller.output("loss"))
    .knot()
)
losses = [stitched({"batch": torch.randn(8, 16, 32)}, {})["loss"] for _ in range(100)]
print(stitched, f"loss {losses[0]:.2f} -> {losses[-1]:.2f}", sep="\n")
