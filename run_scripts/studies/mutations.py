"""Puts each trap of SECURITY.md back into the code, and shows that the test named there fails.

    python run_scripts/studies/mutations.py [--only PART_OF_A_NAME]

Every mutation is made in a copy of the repository, which must pass the same test without it. Exit status 1 if a
mutation goes unnoticed.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A trap, where it goes, and the test that must notice.

    Attributes:
      trap: the trap in words.
      file: below `datalens_tf`.
      old, new: text of the file, and what replaces its first occurrence.
      test: file below `tests`, and the test's name.
      further: other texts of the file and what replaces them, so that the code runs.
    """

    trap: str
    file: str
    old: str
    new: str
    test: str
    further: tuple[tuple[str, str], ...] = ()

    def applied(self, text: str) -> str:
        """The text with the trap in it; raises RuntimeError where the text lacks the place."""
        for old, new in ((self.old, self.new), *self.further):
            if old not in text:
                raise RuntimeError(f"{self.trap}: {self.file} has no {old!r}")
            text = text.replace(old, new, 1)
        return text


# Layers of which no rule is known are always allowed.
_NO_RULE = (("else table[type(layer)]\n", "else table.get(type(layer), _ALWAYS)\n"),)


MUTATIONS = [Mutation(*fields) for fields in (
    ("optimizer moments shared between teachers", "training/adam.py",
     "        v = config.beta_2 * tf.cast(v, tf.float32) + (1 - config.beta_2) * tf.square(gradient)\n",
     "        v = config.beta_2 * tf.cast(v, tf.float32) + (1 - config.beta_2) * tf.square(gradient)\n"
     "        v = tf.broadcast_to(tf.reduce_mean(v, 0, keepdims=True), tf.shape(v))\n",
     "training/teachers_test.py::test_replacing_one_record_leaves_every_other_teacher_bit_identical"),
    ("the same, caught by the audit of a trained run", "training/adam.py",
     "        v = config.beta_2 * tf.cast(v, tf.float32) + (1 - config.beta_2) * tf.square(gradient)\n",
     "        v = config.beta_2 * tf.cast(v, tf.float32) + (1 - config.beta_2) * tf.square(gradient)\n"
     "        v = tf.broadcast_to(tf.reduce_mean(v, 0, keepdims=True), tf.shape(v))\n",
     "auditing/canaries_test.py::test_a_run_that_is_in_order_shows_less_than_it_claims_and_disturbs_nobody"),
    ("moments forgotten on resume", "training/checkpoint.py",
     "f\"teachers-{index:03d}.bin\" for index in range(self._bank.num_arrays)]",
     "f\"teachers-{index:03d}.bin\" for index in range(self._bank.num_arrays // 3)]",
     "training/trainer_test.py::test_interrupted_and_resumed_equals_uninterrupted"),
    ("partitions overlap", "data/partition.py",
     "stream.permutation(num_records)[:num_teachers * shard_size]",
     "stream.randint(0, num_records, num_teachers * shard_size)",
     "data/partition_test.py::test_shards_are_disjoint_and_of_equal_size"),
    ("records repeated across teachers", "data/partition.py",
     "else shard\n                     for shard in partitions])",
     "else partitions[0]\n                     for shard in partitions])",
     "data/partition_test.py -k borrows_from_nobody"),
    ("files of one name are dealt to different teachers", "data/sources/folder.py",
     "        return None if len(numbers) == len(slots)", "        return None if True",
     "data/sources/folder_test.py -k files_of_one_name_share_a_teacher"),
    ("a public seed drives the noise", "mechanisms/noise.py",
     "np.frombuffer(os.urandom(8 * count), np.uint64)", "np.frombuffer(np.random.bytes(8 * count), np.uint64)",
     "mechanisms/noise_test.py::test_no_seed_has_a_say"),
    ("a ledger of predictable noise has an epsilon", "planning/pricing.py",
     "for ledger in ledgers if not _has_secret_noise(ledger)", "for ledger in ()",
     "planning/pricing_test.py -k predictable_noise_is_not_private"),
    ("records are known by a checksum that can be imitated", "data/identity.py",
     "default=Fingerprint.digest)", "default=Fingerprint.checksum)",
     "data/identity_test.py -k made_to_have_the_same_checksum"),
    ("who is sampled comes from a generator that is not cryptographic", "mechanisms/noise.py",
     "    return SecretStream()\n", "    return np.random.default_rng()\n",
     "mechanisms/noise_test.py::test_all_that_a_secret_stream_draws_is_the_operating_systems"),
    ("records are sampled more often than is charged", "mechanisms/noise.py",
     "math.floor(probability * 2**53)", "math.ceil(probability * 2**53)",
     "mechanisms/noise_test.py::test_nobody_takes_part_with_more_than_the_probability_that_is_charged"),
    ("half the true cost charged", "bounds/classic_rdp.py",
     "ORDERS * squared / 2 +", "ORDERS * squared / 4 +",
     "accounting/accountants_test.py -k classic_rdp_by_hand"),
    ("epsilon depends on the data", "training/trainer.py",
     "            charge = self.ledger.spend(self.event, step=step)\n",
     "            charge = self.ledger.spend(type(self.event)(self.event.noise_multiplier * (\n"
     "                1 + float(np.abs(vote_sum).mean()))), step=step)\n",
     "training/trainer_test.py::test_epsilon_is_a_function_of_the_configuration_only"),
    ("a sensitivity that is too small", "mechanisms/topagg.py",
     "return 2.0 * math.sqrt(self.top_k * num_images)", "return math.sqrt(self.top_k * num_images)",
     "mechanisms/topagg_test.py -k swapping_one_teacher"),
    ("the sensitivity of k coordinates where all of them vote", "methods/datalens.py",
     "top_k = self.dimension", "top_k = 200",
     "mechanisms/topagg_test.py -k each_image_costs_its_dimension"),
    ("top-k after the sum: votes of a teacher are not bounded", "mechanisms/topagg.py",
     "    values, indices = _largest(gradients, top_k)\n    uniforms = tf.reshape(uniforms, [-1, top_k])\n",
     "    uniforms = tf.tile(tf.reshape(uniforms, [-1, top_k]), [1, 2])\n"
     "    top_k = min(2 * top_k, gradients.shape[-1])\n"
     "    values, indices = _largest(gradients, top_k)\n    uniforms = uniforms[:, :top_k]\n",
     "mechanisms/topagg_test.py -k swapping_one_teacher"),
    ("raw votes beside the outputs", "training/trainer.py",
     "            charge = self.ledger.spend(self.event, step=step)\n",
     "            np.save(self.folder.path / \"votes.npy\", vote_sum)\n"
     "            charge = self.ledger.spend(self.event, step=step)\n",
     "methods/datalens_test.py::test_run_folder_has_the_documented_files_and_no_others"),
    ("all teachers see all data", "training/teachers.py",
     "records = [self._partitions[span][:, chosen]",
     "records = [np.repeat(self._partitions[:1], span.stop - span.start, 0)[:, chosen]",
     "training/teachers_test.py::test_each_teacher_reads_its_own_partition_only"),
    ("a teacher's private loss stops the run", "training/teachers.py",
     "        self._iterations += len(rounds)\n        return vote_sum, losses",
     "        self._iterations += len(rounds)\n        assert np.isfinite(losses).all()\n"
     "        return vote_sum, losses",
     "training/teachers_test.py -k stops_nobody"),
    ("NaN compares false, and training goes on", "accounting/accountants.py",
     "            _validate.positive(name, value)\n", "            pass\n",
     "accounting/ledger_test.py -k without_a_price_is_refused"),
    ("images of one step priced as if released apart", "mechanisms/topagg.py",
     "self.noise_stddev, self.l2_sensitivity(num_images))", "self.noise_stddev, self.l2_sensitivity(1))",
     "mechanisms/topagg_test.py -k preset_reproduces"),
    ("floating-point noise by default", "mechanisms/noise.py",
     "    return RoundedGaussianNoise() if config.noise == \"rounded_gaussian\" else SecureGaussianNoise()",
     "    return SecureGaussianNoise()",
     "mechanisms/noise_test.py::test_the_default_is_exact_and_other_noise_has_to_be_asked_for"),
    ("noise of another width than charged for", "mechanisms/noise.py",
     "        magnitude, certain = _rounded_quantiles(bits, stddev)\n",
     "        magnitude, certain = _rounded_quantiles(bits, 0.9 * stddev)\n",
     "mechanisms/noise_test.py::test_rounded_noise_has_the_probabilities_of_a_rounded_gaussian"),
    ("test data is looked at after every epoch", "training/classifier.py",
     "    if protocol.every_epoch:\n", "    if True:\n",
     "evaluation/metrics/utility_test.py::test_training_sees_no_test_record"),
    ("the best epoch's accuracy is reported", "training/classifier.py",
     "        accuracy=float(correct.mean()),",
     "        accuracy=max(float(correct.mean()), max(facts[\"epoch_accuracies\"] or [0.0])),",
     "evaluation/metrics/utility_test.py -k continues_where_it_was_interrupted"),
    ("the best seed's accuracy is reported", "evaluation/metrics/utility.py",
     "        \"accuracy_mean\": statistics.fmean(accuracies),", "        \"accuracy_mean\": max(accuracies),",
     "evaluation/metrics/utility_test.py::test_metrics_of_several_seeds"),
    ("a history that changes behind one's back", "accounting/ledger.py",
     "@dataclasses.dataclass(frozen=True, kw_only=True)\nclass Charge",
     "@dataclasses.dataclass(kw_only=True)\nclass Charge",
     "accounting/ledger_test.py -k cannot_be_edited_in_place"),
    ("an altered ledger is read", "accounting/ledger.py",
     "    if record.get(\"hash\") != digest:", "    if False:",
     "accounting/ledger_test.py -k altered"),
    ("a ledger that lost charges is resumed", "accounting/ledger.py",
     "        if not known:\n            raise LedgerError", "        if False:\n            raise LedgerError",
     "training/trainer_test.py -k ledger_that_lost_charges"),
    ("a new ledger beside private state", "training/run_folder.py",
     "if (made := files.paid_for()) is not None:", "if (made := None) is not None:",
     "methods/dp_merf_test.py -k ledger_that_lost_charges"),
    ("a forged statement is exported", "accounting/verification.py",
     "        if not math.isclose(stated, prices[name], rel_tol=_ACCURACY):\n", "        if False:\n",
     "accounting/verification_test.py -k smaller_epsilon"),
    ("forks of a run are counted as one", "planning/pricing.py",
     "(ledger.hash_of(charge.index) if ledger.version > 1 else (str(ledger.path), charge.index)): charge\n",
     "charge.index: charge\n", "planning/pricing_test.py -k forks_of_one_run"),
    ("the noise is drawn before the charge", "training/trainer.py",
     "            charge = self.ledger.spend(self.event, step=step)\n",
     "            self.noise.draw((1, 1), 1.0, len(self.ledger.charges))\n"
     "            charge = self.ledger.spend(self.event, step=step)\n",
     "training/trainer_test.py -k charge_is_on_disk_before"),
    ("a charge without a stored sum is drawn again for nothing", "training/trainer.py",
     "            charge = self.ledger.spend(self.event, step=step)\n",
     "            lost = [c.index for c in self.ledger.charges if c.step == step]\n"
     "            charge = lost[0] if lost else self.ledger.spend(self.event, step=step)\n",
     "training/trainer_test.py::test_a_charge_without_a_stored_sum_is_burnt_and_never_drawn_again"),
    ("records of undeclared classes are dropped, and move all others", "data/datasets.py",
     "            usable = inside if usable is None else inside & usable\n        num_classes, class_names",
     "            images, labels = images[inside], labels[inside]\n        num_classes, class_names",
     "data/datasets_test.py -k a_neighbour_with_any_label"),
    ("pictures of undeclared classes are learned from where a teacher has no others", "data/datasets.py",
     "            images[~inside] = 0\n", "",
     "data/datasets_test.py -k a_neighbour_with_any_label"),
    ("a delta that is large for so many records", "training/run_folder.py",
     "    check_delta(config, int(np.sum(identity[\"num_records\"])))", "    pass",
     "accounting/delta_test.py -k every_method_refuses"),
    ("an archive is unpacked before it is looked at", "_files.py",
     "            check(headers)\n            _check_memory(headers)\n", "",
     "_files_test.py::test_what_arrays_may_be_is_asked_before_any_is_unpacked"),
    ("absurd numbers are computed with", "settings.py",
     "            _validate.require(abs(number) <= largest, name, number, f\"to be at most {largest:,}\")\n", "",
     "config_test.py -k absurd_numbers_are_refused"),
    ("what a generator says of itself is believed", "serving/export.py",
     "            if not images.is_compatible_with([None, *loaded.image_shape]):", "            if False:",
     "serving/export_test.py -k metadata_that_no_generator_can_have"),
    ("users' models: layers of any type", "classification/allowed_layers.py",
     "        if type(layer) not in (*table, *_CONTAINERS):\n", "        if False:\n",
     "classification/allowed_layers_test.py -k models_that_mix_records", _NO_RULE),
    ("users' models: subclasses, which may override anything", "classification/allowed_layers.py",
     "        if type(layer) not in (*table, *_CONTAINERS):\n",
     "        if not isinstance(layer, (*table, *_CONTAINERS)):\n",
     "classification/allowed_layers_test.py -k models_that_mix_records", _NO_RULE),
    ("users' models: axes that are the batch", "classification/allowed_layers.py",
     "return all(-rank < axis < rank and axis != 0 for axis", "return all(axis != 0 for axis",
     "classification/allowed_layers_test.py -k models_that_mix_records"),
    ("users' models: calls that are training whatever the model is told", "classification/allowed_layers.py",
     "    if options.pop(\"training\", None):\n", "    if options.pop(\"training\", None) and False:\n",
     "classification/allowed_layers_test.py -k models_that_mix_records"),
    ("users' models: code of a file runs before it is looked at", "classification/allowed_layers.py",
     "        if not _known(item):\n", "        if False:\n",
     "classification/allowed_layers_test.py -k nothing_in_a_file_is_run"),
    ("users' models: another record's gradient changes unnoticed", "models/places.py",
     "        if not np.array_equal(np.delete(before, place, 0), np.delete(after, place, 0)):\n", "        if False:\n",
     "classification/networks_test.py -k any_change_of_another"),
    ("users' models: gradients rounded by a record's place in its batch", "classification/networks.py",
     "            if same_anywhere(self, *self._invented(shape), name=\"model\"):\n", "            if True:\n",
     "classification/networks_test.py -k rounds_by_a_records_place"),
    ("users' models: statistics of records in weights that are not trained", "classification/networks.py",
     "            if weight.numpy().tobytes() != before:\n", "            if False:\n",
     "classification/classifier_test.py -k bit_equal"),
    ("features rounded by the number of records", "methods/sum_questions.py",
     "of(datasets.padded(images, datasets.CHUNK)).numpy()[:len(images)]", "of(images).numpy()",
     "methods/dp_merf_test.py -k how_many_records"),
    ("a release of many charges is charged in many lines", "training/releases.py",
     "        charge = self.ledger.spend(_composed(unit, num_charges), step=release)\n",
     "        charge = [self.ledger.spend(unit, step=release) for _ in range(num_charges)][-1]\n",
     "training/releases_test.py::test_each_release_is_one_line_that_costs_what_is_drawn"),
    ("a resumed run spends before it sees that the rest is not affordable", "training/releases.py",
     "        num_charges = sum(self._plan[len(self._store):])\n\n        def affordable",
     "        num_charges = self._plan[len(self._store)]\n\n        def affordable",
     "training/releases_test.py::test_too_little_noise_from_the_start_is_refused_before_the_first_charge"),
    ("a kill costs the run", "training/releases.py",
     "        smallest = bisect.bisect_left(possible, True, key=affordable)\n",
     "        smallest = len(possible)\n",
     "training/releases_test.py -k leaves_a_run_that_can_end"),
    ("more noise is charged for than is drawn", "training/releases.py",
     "        made = mechanism(noise_multiplier=_multiplier(unit, num_charges))\n",
     "        made = mechanism(noise_multiplier=_multiplier(self.event, num_charges))\n",
     "training/releases_test.py -k a_kill_burns_one_line"),
    ("a stored release is read with other noise than it has", "training/releases.py",
     "            unit = self.ledger.charges[self._store.charge(release)].unit\n", "            unit = self.event\n",
     "training/releases_test.py::test_every_start_finds_the_same_noise_and_what_is_stored_keeps_its_own"),
    ("files that run code when they are read", "_files.py",
     "read_array(file, allow_pickle=False)", "read_array(file, allow_pickle=True)",
     "data/sources/npz_test.py -k pickled_objects_are_never_loaded"),
    ("logs tell how long a step took", "training/callbacks.py",
     "event_pb2.Event(wall_time=report.step, step", "event_pb2.Event(wall_time=time.time(), step",
     "training/callbacks_test.py -k neither_the_host"),
    ("settings that may be shared tell where the data lies", "config.py",
     "dataset=_text.without_folders(self.dataset))", "dataset=self.dataset)",
     "cli/places_test.py::test_python_writes_no_place_either"),
    ("results of an evaluation lie beside what is shared", "cli/evaluation.py",
     "results.make_results_folder(source), source", "source, source",
     "cli/evaluation_test.py::test_evaluate_leaves_what_touches_real_records_in_private"),
    ("a generator is judged by what it learned from", "image_generator.py",
     "if run_folder.RunFolder(self._fitted).trained_on(test):", "if False:",
     "image_generator_test.py::test_it_is_not_evaluated_on_the_records_that_it_was_trained_on"),
    ("every model card has scores on real data", "methods/base.py",
     "self._metrics() if with_metrics else None", "self._metrics()",
     "cli/generators_test.py::test_a_card_has_scores_on_real_data_only_if_asked"),
    ("the public report has what was measured", "evaluation/report.py",
     "return _write_page(folder, None, run_charts(facts, {}), facts, samples)",
     "return _write_page(folder, json.loads((folder / 'private/evaluation/metrics.json').read_text()), {}, facts, "
     "samples)",
     "cli/evaluation_test.py::test_evaluate_leaves_what_touches_real_records_in_private"),
    ("weights of another run get this run's statement", "serving/export.py",
     "            check_files(aside, named=source)\n", "", "cli/generators_test.py -k generator_of_another_run"),
    ("a generator of another run gets this run's statement", "methods/base.py",
     "not in (None, statement)", "not in (None, statement) and False",
     "cli/generators_test.py -k generator_of_another_run"),
    ("whatever statement lies beside a generator is served", "serving/servables.py",
     "        verification.export_statement(folder)\n", "", "serving/servables_test.py -k statement_that_is_not_true"),
    ("a generator may answer another statement than that beside it", "auditing/verification.py",
     "if described and stated.exists() and", "if False and", "auditing/verification_test.py -k statement_of_another"),
    ("names in a card are markup", "serving/model_card.py",
     "(_text.everywhere(_text.markdown, value) for value in", "(value for value in",
     "serving/model_card_test.py::test_names_from_data_are_text"),
    ("names in a table are formulas", "evaluation/comparison.py", "_text.cell(value)", "value",
     "evaluation/comparison_test.py::test_names_of_others_are_text"),
    ("a page runs whatever script gets into it", "evaluation/templates/report.html.j2",
     "Content-Security-Policy", "X-Nothing", "evaluation/report_test.py::test_its_policy_stops_scripts_and_requests"),
    ("the page that draws runs whatever script gets into it", "serving/templates/page.html.j2",
     "Content-Security-Policy", "X-Nothing", "serving/convert_test.py -k policy_stops_scripts"),
    ("an owner tells the driver what is wrong with its records", "training/actors.py",
     "if method != \"load\" and isinstance(error, _OF_THE_PROTOCOL):", "if isinstance(error, (DataError, ValueError)):",
     "training/actors_test.py -k told_to_their_owner_alone"),
    ("a replaced record in a sample is priced as an absent one", "bounds/poisson_sampling.py",
     "rate * special.ndtr(-shift - cut)", "rate * special.ndtr(-cut)",
     "bounds/poisson_sampling_test.py -k no_two_vectors"),
    ("a replaced record moves a sum by no more than an absent one", "accounting/accountants.py",
     "GaussianDpEvent(event.noise_multiplier / 2)", "GaussianDpEvent(event.noise_multiplier)",
     "accounting/accountants_test.py -k moves_a_sum_by_two_sensitivities"),
    ("runs that protect an image and a person are added up", "planning/pricing.py",
     "if len(protected) > 1:", "if len(protected) > 2:",
     "planning/pricing_test.py -k different_units_have_none"),
    ("what somebody put into the generator's folder is shared", "image_generator.py",
     "                        copy.unlink()  # Somebody put it there.", "                        pass",
     "cli/share_test.py -k unknown_origin_stays"),
)]


def failure(folder, test):
    """The test's complaint in a copy of the repository, in one line; None where the test passes."""
    path, _, keyword = test.partition(" -k ")
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "",
             str(pathlib.Path("tests") / path)]
    done = subprocess.run(words + (["-k", keyword] if keyword else []), cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{test}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    complaints = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E  ")]
    return None if done.returncode == 0 else (complaints or ["?"])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a trap's name")
    only = parser.parse_args().only
    chosen, unnoticed, sound = [m for m in MUTATIONS if only in m.trap], 0, {}
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch, "copy")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "*.egg-info", "__pycache__", ".venv"))
        print("| trap put back | test that fails | what it says |\n|---|---|---|", flush=True)
        for mutation in chosen:
            path = copy / "datalens_tf" / mutation.file
            text = path.read_text()
            if mutation.test not in sound:
                sound[mutation.test] = failure(copy, mutation.test) is None
            path.write_text(mutation.applied(text))
            complaint = failure(copy, mutation.test)
            path.write_text(text)
            # A test that fails because the changed code crashes has noticed nothing.
            caught = sound[mutation.test] and complaint is not None and complaint.startswith(
                ("assert", "AssertionError", "Failed: DID NOT RAISE", "Not equal to tolerance"))
            unnoticed += not caught
            name, said = mutation.test.replace(" -k ", ": "), str(complaint)[:90].replace("|", "/").replace("`", "'")
            print(f"| {mutation.trap} | {'' if caught else 'NOT NOTICED by '}`{name}` | `{said}` |", flush=True)
    print(f"\n{len(chosen)} mutations, {unnoticed} unnoticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
