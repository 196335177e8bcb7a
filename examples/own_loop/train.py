"""A training loop as anyone writes it, with the lines (`handle`) that make the network binary."""

import bitfront as bf
import torch
from my_net import DigitNet
from sklearn.datasets import load_digits
from torch.nn import functional as F

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
y = torch.tensor(digits.target)
model = DigitNet()
handle = bf.binarize(model, plan="B", method="bnn++", mu_end=30)
optimizer = handle.attach(torch.optim.Adam(handle.parameters(), lr=0.01))

EPOCHS, BATCH = 8, 50
for epoch in range(EPOCHS):
    batches = torch.randperm(1500).split(BATCH)
    for step, rows in enumerate(batches):
        handle.before_step((epoch + step / len(batches)) / EPOCHS)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

handle.finish()
with torch.no_grad():
    outputs = model(x[1500:])
print(f"test accuracy {(outputs.argmax(1) == y[1500:]).float().mean():.3f}")
print(f"{bf.save(model, 'digits.safetensors'):,} bytes")

loaded = bf.load("digits.safetensors")
with torch.no_grad():
    print("the same outputs:", torch.equal(loaded(x[1500:]), outputs))
