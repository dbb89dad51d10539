"""Generators as SavedModels."""
