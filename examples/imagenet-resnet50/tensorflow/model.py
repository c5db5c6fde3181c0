"""ResNet v1.5: He et al., "Deep Residual Learning for Image Recognition" (2015), with the stride of a bottleneck in its
3×3 convolution rather than in the first 1×1, as everybody has trained it since (a little slower, half a point better).
"""

import keras
from keras import layers

BLOCKS = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}


def resnet(
    depth: int = 50, classes: int = 1000, width: int = 64, image_size: int = 224, weight_decay: float = 0.0
) -> keras.Model:
    """Pixels from 0 to 255 (n, size, size, 3) → logits (n, classes), always float32. ``weight_decay`` is that of all
    weights but biases and normalization; the model's ``losses`` hold it."""
    decay = keras.regularizers.L2(weight_decay / 2) if weight_decay else None

    def conv(x, outputs: int, size: int, stride: int = 1):
        if size > 1:  # by hand: 'same' would put all of it to the right and below when the stride is 2
            x = layers.ZeroPadding2D(size // 2)(x)
        start = keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
        return layers.Conv2D(outputs, size, stride, use_bias=False, kernel_initializer=start, kernel_regularizer=decay)(
            x
        )

    def norm(x, start: str = "ones"):
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, gamma_initializer=start)(x)

    def basic(x, channels: int, stride: int):
        y = layers.ReLU()(norm(conv(x, channels, 3, stride)))
        return norm(conv(y, channels, 3), "zeros")

    def bottleneck(x, channels: int, stride: int):
        y = layers.ReLU()(norm(conv(x, channels, 1)))
        y = layers.ReLU()(norm(conv(y, channels, 3, stride)))  # v1.5: the stride is here
        return norm(conv(y, 4 * channels, 1), "zeros")

    kind, counts = BLOCKS[depth]
    block, expansion = (basic, 1) if kind == "basic" else (bottleneck, 4)
    pixels = keras.Input((image_size, image_size, 3))
    # ImageNet's mean and deviation.
    x = layers.Normalization(mean=(123.675, 116.28, 103.53), variance=(58.395**2, 57.12**2, 57.375**2))(pixels)
    x = layers.ReLU()(norm(conv(x, width, 7, 2)))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))  # after a ReLU, zeros are as good as nothing
    for stage, count in enumerate(counts):
        for index in range(count):
            channels = width << stage
            stride = 2 if stage and not index else 1
            shortcut = x
            if stride != 1 or x.shape[-1] != channels * expansion:
                shortcut = norm(conv(x, channels * expansion, 1, stride))
            # A block begins as its shortcut alone: the last normalization's scale is 0 (Goyal et al., 5.1).
            x = layers.ReLU()(layers.Add()([block(x, channels, stride), shortcut]))
    x = layers.GlobalAveragePooling2D()(x)
    start = keras.initializers.RandomNormal(stddev=0.01)
    logits = layers.Dense(classes, dtype="float32", kernel_initializer=start, kernel_regularizer=decay)(x)
    return keras.Model(pixels, logits)
