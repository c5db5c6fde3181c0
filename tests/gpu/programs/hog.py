"""Takes memory of the GPU until there is no more, 4 GiB at a time, by PyTorch's own allocator."""

import torch

if not torch.cuda.is_available():  # a rehearsal: PyTorch's own exception, in its own words
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.06 GiB is "
        "free. Including non-PyTorch memory, this process has 78.04 GiB memory in use."
    )
held = []
while True:
    held.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))
    print(f"{4 * len(held)} GiB", flush=True)
