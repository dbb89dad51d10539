"""Labelled images and their assignment to teachers."""
