"""Audits: whether mechanisms, runs and files are as private as they say."""
