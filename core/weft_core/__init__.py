"""The parts of a job: manifest, life cycle, store, objects, secrets and the launch spec.

Imports nothing else of Weft's; the api and the workers stand on it.
"""

__version__ = "0.1.0"
