"""Planning: what a budget pays for, before anything is trained."""
