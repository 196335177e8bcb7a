"""Trains a small timm network on the digits for a few seconds and writes its weights: a stand-in
for a checkpoint of your own."""

import timm
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images[:1200], dtype=torch.float32)[:, None] / 16
x = F.interpolate(x, size=32).expand(-1, 3, -1, -1)
y = torch.tensor(digits.target[:1200])
model = timm.create_model("test_resnet", num_classes=10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for _ in range(4):
    for rows in torch.randperm(len(x)).split(64):
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "digits.pt")
print(f"digits.pt: loss of the last batch {loss.item():.2f}")
