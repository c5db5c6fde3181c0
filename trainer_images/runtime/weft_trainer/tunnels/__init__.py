"""Tunnels: the work of users in a learner of a running job, through connections that the agent opens.

- ``tunnels`` opens the connection for each tunnel that a heartbeat's answer asks for, and ends them with the program.
- ``stream`` is the protocol: frames, and a window in each direction.
- ``command`` runs a command in the program's place; ``archive`` is the command that packs or unpacks files.
- ``forward`` connects to a port.
"""
