"""The processes that the engine ``ray`` runs on a Ray cluster.

    driver (a Ray job, on the head)  ──▶  one actor per learner  ──▶  guard  ──▶  agent  ──▶  the user's processes

    the job's process (a Ray job with a learner's resources)  ──▶  guard  ──▶  agent  ──▶  the user's processes

The first is a gang, the second a run of one learner (``alone``). ``driver`` asks for a placement group, starts the
actors and keeps the books (``board``): a run's status stands in its Ray job's metadata, so that one listing of jobs
shows the engine all runs. ``learner`` is the actor, ``guard`` a small process that nothing of a learner survives.

The driver runs on the cluster's own Python. The actors get their code from the driver and import nothing of Weft.
"""
