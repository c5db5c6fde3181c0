"""The life of a job, and every decision about it, as pure functions of plain values.

``states``     the states of jobs and learners, and their order
``view``       everything that is known about a job at one moment: the only input of a decision
``decide``     the next action, the end of an attempt, and what becomes of the job then
``actions``    the actions
``failures``   which learner is to blame for the end of an attempt, and in which words
``elastic``    the same for an elastic attempt, which goes on without the learners that it loses
``rounds``     which learners train together in an elastic attempt
``progress``   whether a running gang makes progress
``sightings``  what an engine's answer means for a learner
``notes``      what each step records about a job: its condition, its reason, where learners run
``storing``    which learner may store results, and when

The workers read a view from the database and perform the actions on an engine; ``weft run`` does both in memory.
"""
