"""How useful synthetic data is."""
