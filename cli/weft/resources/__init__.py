"""The resources of the HTTP API: a class for each, which :class:`weft.Client` holds as an attribute.

Each class translates its methods into requests and the answers into the values of :mod:`weft.models`.
"""
