"""Methods: one file each, with its settings, presets, training and wording; and what several of them share."""
