"""One module per accountant, with an `Accountant` and its `PLACE` in tables, which list the loosest bound first."""
