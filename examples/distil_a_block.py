import torch
from torch import nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle

torch.manual_seed(0)
teacher = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 128, batch_first=True), 4).requires_grad_(False).train()
student = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 32))  # shall do what layer 2 does
optimizer = torch.optim.Adam(student.parameters(), 1e-2)


def train(got, wanted):
    loss = nn.functional.mse_loss(got, wanted)
    loss.backward(), optimizer.step(), optimizer.zero_grad()
    return loss.item()


caller, t, s, f = ExternalTarget(), ModuleTarget("teacher", teacher), ModuleTarget("student", student), FunctionTarget("train", train)
stitched = (
    Needle()
    .stitch(caller.input("batch"), t.input(""))                 # the caller's batch goes into the teacher
    .stitch(t.input("layers.2"), s.input("", adapter="first"))  # what its layer 2 receives (no masks) into the student
    .stitch(s.output(""), f.input()).stitch(t.output("layers.2"), f.input())  # both answers go into train(got, wanted)
    .stitch(f.output(), caller.output("loss"))
    .knot()                                                     # the teacher's forward is left after layer 2
)
losses = [stitched({"batch": torch.randn(8, 16, 32)}, {})["loss"] for _ in range(100)]
print(stitched, f"loss {losses[0]:.2f} -> {losses[-1]:.2f}", sep="\n")
