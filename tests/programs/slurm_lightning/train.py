"""Lightning's Trainer on two nodes of Slurm's, which it finds by itself."""

import lightning
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


lightning.seed_everything(0)
points = torch.randn(64, 8)
data = torch.utils.data.TensorDataset(points, points.sum(dim=1, keepdim=True))
trainer = lightning.Trainer(num_nodes=2, accelerator="cpu", strategy="ddp", max_epochs=3, log_every_n_steps=2)
assert isinstance(trainer.strategy.cluster_environment, SLURMEnvironment)
model = Regression()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"world {trainer.world_size} rank {trainer.global_rank} parameters {total:.10f}", flush=True)
