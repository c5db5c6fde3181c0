"""A job with a secret in its folder and at a port, which runs until somebody halts it."""

import socket

with open("secret.txt", "w") as file:
    file.write("the weights of the other project")
with socket.create_server(("0.0.0.0", 0)) as server:  # as of a gang's rendezvous
    print("the secret is there, and at port", server.getsockname()[1], flush=True)
    while True:
        with server.accept()[0] as connection:
            connection.sendall(b"the gradients of the other project")
