"""Takes memory until the kernel ends it; where it does not, gives up before the machine suffers."""

pieces = []
while len(pieces) < 128:
    pieces.append(bytearray(16 << 20))
    print(f"{len(pieces) * 16} MiB", flush=True)
raise SystemExit("nobody limits my memory")
