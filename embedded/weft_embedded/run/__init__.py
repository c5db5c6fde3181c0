"""`weft run`: a manifest's job on this machine, with the agent and launchers of every other engine and no server.

``python -m weft_embedded.run`` is a process between the `weft` command, which packs the code and shows the progress,
and the local engine, which starts learners and ends them. It reads the manifest, is the API that the learners talk to
(on the loopback interface, for as long as the run lasts), keeps results and checkpoints in folders, and makes all
decisions about the job. `docs/local-run.md` is the user's page.

The first line on its standard input is the :class:`~weft_embedded.run.request.Request`; ``{"stop": SECONDS}`` may
follow, and its end means that the caller is gone. Each line on standard output is a JSON object with a ``type``; the
last one is ``end``, ``invalid`` or ``error``.
"""
