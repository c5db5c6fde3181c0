"""Prints which of the machine's GPUs a learner sees."""

import json
import os

import torch

found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
for index in range(len(found)):
    assert torch.ones(1000, device=f"cuda:{index}").sum().item() == 1000
told = {
    "visible": os.environ["CUDA_VISIBLE_DEVICES"],
    "count": os.environ["GPU_COUNT"],
    "names": [device.name for device in found],
    "uuids": ["GPU-" + str(device.uuid).removeprefix("GPU-") for device in found],
}
print("seen", json.dumps(told))
