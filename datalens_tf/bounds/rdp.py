"""Renyi accounting with a tighter conversion, by dp_accounting."""

import dp_accounting

from datalens_tf.bounds.accountant import RELATIONS, Accountant, Tally, by_dp_accounting

PLACE = 2


class Rdp(Accountant):
    """dp_accounting's RDP accountant."""

    note = "dp_accounting's Renyi accountant; valid"

    def epsilon(self, tally: Tally, delta: float, adjacency: str) -> float:
        return by_dp_accounting(dp_accounting.rdp.RdpAccountant(neighboring_relation=RELATIONS[adjacency]), tally,
                                delta, adjacency)
