"""Every worker of a MultiWorkerMirroredStrategy adds its index + 1; all print the sum."""

import json
import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


@tf.function
def add() -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce("sum", tf.constant(index + 1.0))


total = float(strategy.run(add))
print(f"learner {os.environ['LEARNER_ID']}: rank {index} of {strategy.num_replicas_in_sync}, sum {total:g}")
