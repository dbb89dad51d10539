"""DataLens: a generator from noisy votes of teacher discriminators (Wang et al., CCS 2021)."""

from typing import Any

from datalens_tf.config import DataLensConfig
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.privacy.statement import privacy_statement
from datalens_tf.synthesizers.voted import VotedSynthesizer


class DataLens(VotedSynthesizer):
    """See `RunSynthesizer`; the settings are a `DataLensConfig`."""

    config_class = DataLensConfig

    def _mechanism(self) -> TopAgg:
        return TopAgg.from_config(self.config)

    def _statement(self, ledger: PrivacyLedger, num_burnt: int, num_records: int) -> dict[str, Any]:
        return privacy_statement(config=self.config, mechanism=self._mechanism(), ledger=ledger, num_burnt=num_burnt,
                                 noise=noise_source(self.config), num_records=num_records)
