"""The installation as an issuer of identity tokens: the two documents that verifiers read."""
