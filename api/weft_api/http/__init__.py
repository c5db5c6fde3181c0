"""Requests and answers, whatever they are about."""
