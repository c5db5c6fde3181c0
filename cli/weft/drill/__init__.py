"""``weft drill``: trains a job undisturbed, and again while it is killed and halted, and compares the two trainings.

``record`` holds what is known of a training, ``weights`` reads its results, ``compare`` finds the differences,
``causes`` names what the program does not save, ``run`` drives the jobs, ``inside`` runs in a learner, and ``report``
writes the result down.
"""
