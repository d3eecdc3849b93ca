"""A model that tpgen has compiled, driven by a data loader of PyTorch: see README.md."""
import torch
from torch.utils.data import DataLoader, TensorDataset

from toy import Model

torch.manual_seed(0)
inputs = torch.randn(200, 10)
data = TensorDataset(inputs, inputs[:, :5] - inputs[:, 5:])
with Model(threads=1) as model:
    for epoch in range(3):
        for x, y in DataLoader(data, batch_size=20, shuffle=True):
            loss = model.step(input=x, target=y)
        print(f"epoch {epoch + 1}: loss {loss:.4f}")
    model.export("trained")
