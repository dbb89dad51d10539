"""Measures of an evaluation, one file for each section of `metrics.json`; see `evaluation.registry`."""
