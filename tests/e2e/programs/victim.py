"""A job with a secret in its folder, which runs until somebody halts it."""

import time

with open("secret.txt", "w") as file:
    file.write("the weights of the other project")
print("the secret is there", flush=True)
time.sleep(3600)
