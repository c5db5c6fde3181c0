"""Keras 2's fit() under MultiWorkerMirroredStrategy, as in TensorFlow's guide. Each worker has data of its own."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
inputs = tf.random.stateless_normal((64, 8), seed=(rank, 0))
data = tf.data.Dataset.from_tensor_slices((inputs, tf.reduce_sum(inputs, axis=1, keepdims=True))).batch(16)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
tf.keras.utils.set_random_seed(0)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(8,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse")
history = model.fit(data.with_options(options), epochs=2, verbose=2)
assert history.history["loss"][-1] < history.history["loss"][0], history.history
total = sum(variable.numpy().astype("float64").sum() for variable in model.trainable_variables)
print(f"world {strategy.num_replicas_in_sync} rank {rank} parameters {total:.10f}", flush=True)
