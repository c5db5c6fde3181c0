"""JAX over several processes: initialize() finds the gang as one of Slurm's."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
port = int(os.environ["SLURM_JOB_ID"]) % 2**12 + 65535 - 2**12 + 1  # as JAX derives it for Slurm alone
assert distributed.global_state.coordinator_address.endswith(f":{port}"), distributed.global_state.coordinator_address
mesh = Mesh(np.array(jax.devices()), ("data",))
rank, world = jax.process_index(), jax.process_count()
mine = np.random.default_rng(rank).normal(size=(8, 4)).astype("float32")  # each process has data of its own
inputs = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), mine)
weights = jax.device_put(jnp.zeros((4,)), NamedSharding(mesh, P()))


@jax.jit
def step(weights, inputs):
    def loss(weights):
        return jnp.mean((inputs @ weights - inputs.sum(axis=1)) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


for _ in range(5):
    weights, value = step(weights, inputs)
    print(f"loss {float(value):.4f}", flush=True)
total = float(np.asarray(weights.addressable_data(0), dtype="float64").sum())
print(f"world {world} rank {rank} parameters {total:.10f}", flush=True)
