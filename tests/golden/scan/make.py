#!/usr/bin/env python3
"""Writes what tests/scripts/programs/scan.sh compares with, beside itself: for tests/plans/scan/recurrent.lua and mamba.lua the weights, the
data and the losses of PyTorch. Needs PyTorch (2.13 made them) and safetensors."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))


class Recurrent(nn.Module):
    def __init__(self, i=5, h=6):
        super().__init__()
        self.lstm = nn.LSTM(i, h, 2, batch_first=True)
        self.both = nn.GRU(h, h, batch_first=True, bidirectional=True)
        self.rnn = nn.RNN(2 * h, h, nonlinearity="relu")
        self.lstm_cell, self.gru_cell, self.rnn_cell = nn.LSTMCell(h, h), nn.GRUCell(h, h), nn.RNNCell(h, h)
        self.fc = nn.Linear(h, 3)

    def forward(self, x, h, c):
        y, state = self.lstm(x, (h, c))
        z, last = self.both(y)
        z, h = self.rnn(z.transpose(0, 1), last[:1].contiguous())
        h1, c1 = self.lstm_cell(h[0], (state[0][1], state[1][1]))
        return self.fc(z) + self.fc(self.rnn_cell(self.gru_cell(h1, c1)))


class Mamba(nn.Module):
    def __init__(self, d=6, h=2, p=4, n=3):
        super().__init__()
        self.sizes = h, p, n
        self.in_x, self.in_z = nn.Linear(d, h * p, bias=False), nn.Linear(d, h * p, bias=False)
        self.in_b, self.in_c, self.in_dt = nn.Linear(d, n, bias=False), nn.Linear(d, n, bias=False), nn.Linear(d, h)
        self.conv = nn.Conv1d(h * p, h * p, 4, groups=h * p)
        self.A_log, self.D = nn.Parameter(torch.randn(h) * 0.3), nn.Parameter(torch.ones(h))
        self.norm = nn.RMSNorm(h * p, eps=1e-5)
        self.out = nn.Linear(h * p, d, bias=False)

    def forward(self, u):
        heads, p, n = self.sizes
        x = self.conv(F.pad(self.in_x(u).transpose(1, 2), (3, 0))).transpose(1, 2)
        x = F.silu(x).unflatten(-1, (heads, p))
        dt = F.softplus(self.in_dt(u))
        a, b, c = torch.exp(dt * -self.A_log.exp()), self.in_b(u), self.in_c(u)
        h, y = torch.zeros(u.shape[0], heads, p, n, dtype=u.dtype), []
        for t in range(u.shape[1]):
            h = h * a[:, t, :, None, None] + torch.einsum("bhp,bn->bhpn", x[:, t] * dt[:, t, :, None], b[:, t])
            y.append(torch.einsum("bhpn,bn->bhp", h, c[:, t]))
        y = torch.stack(y, 1) + x * self.D.view(heads, 1)
        return self.out(self.norm(y.flatten(2) * F.silu(self.in_z(u))))


class MambaNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Mamba(), Mamba()])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def write(name, model, data, inputs):
    save_file({k: v.clone() for k, v in model.state_dict().items()}, f"{HERE}/{name}.weights.safetensors")
    save_file(data, f"{HERE}/{name}.data.safetensors")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with open(f"{HERE}/{name}.losses", "w") as file:
        for _ in range(20):
            loss = F.mse_loss(model(*[data[k] for k in inputs]), data["target"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            file.write(f"{loss.item():.9g}\n")


torch.manual_seed(0)
write("recurrent", Recurrent(),
      {"input": torch.randn(6, 7, 5), "target": torch.randn(7, 6, 3), "h": torch.randn(2, 6, 6), "c": torch.randn(2, 6, 6)},
      ("input", "h", "c"))
write("mamba", MambaNet(), {"input": torch.randn(4, 9, 6), "target": torch.randn(4, 9, 6)}, ("input",))
