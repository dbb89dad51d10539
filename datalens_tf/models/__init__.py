"""Networks: generators, ensembles of discriminators, critics."""
