"""Takes memory until the kernel ends it."""

pieces = []
while True:
    pieces.append(bytearray(16 << 20))
    print(f"{len(pieces) * 16} MiB", flush=True)
