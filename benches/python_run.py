"""One run of the exercise's batch-size sweep in Python on the CPU, with torch's default threads: what memlab is compared with.

    python benches/python_run.py BATCH

The model is that of src/bin/memlab-worker/model.rs, written with torch.nn; nothing is measured but the time of the process.
"""
import sys

import torch
from torch import nn
from torch.nn import functional

LAYERS, HIDDEN, HEADS, FEEDFORWARD, SEQUENCE, VOCABULARY, CLASSES, STEPS, SEED = 4, 384, 6, 1536, 256, 4096, 16, 6, 1234


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, HEADS, bias=False, batch_first=True)
        self.norm2 = nn.LayerNorm(HIDDEN)
        self.feedforward = nn.Sequential(
            nn.Linear(HIDDEN, FEEDFORWARD, bias=False),
            nn.GELU(approximate="tanh"),
            nn.Linear(FEEDFORWARD, HIDDEN, bias=False),
        )

    def forward(self, x):
        normed = self.norm1(x)
        attended, _ = self.attention(normed, normed, normed, need_weights=False)
        x = x + attended
        return x + self.feedforward(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.position = nn.Parameter(torch.empty(SEQUENCE, HIDDEN))
        nn.init.normal_(self.position, std=0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.classifier = nn.Linear(HIDDEN, CLASSES, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.unsqueeze(0)
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.norm(x[:, 0]))


torch.manual_seed(SEED)
batch = int(sys.argv[1])
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
tokens = torch.randint(0, VOCABULARY, (batch, SEQUENCE))
labels = torch.randint(0, CLASSES, (batch,))
for _ in range(STEPS):
    loss = functional.cross_entropy(model(tokens).float(), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(loss.item())
