"""The phases of a learner's life, each in a module, and the object that they share (:class:`.learner.Learner`)."""
