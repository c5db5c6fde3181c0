"""The phases of a learner's life, each in a module, and what all of them share (:class:`.learner.Learner`)."""
