"""What programs written for the seed's API rely on."""

from __future__ import annotations

PROGRAMS: dict[str, dict[str, tuple[str, ...]]] = {
    "program 1": {
        "the shape of a fake unpacks": ("tests/passage/test_fake.py::test_its_shape_unpacks",),
        "its device is the one asked for, and not meta": (
            "tests/passage/test_fake.py::test_the_device_asked_for_and_never_meta",
        ),
        "real tensors made from it inside a model are real, and it mixes with real weights": (
            "tests/passage/test_fake.py::test_it_mixes_with_real_weights_and_real_tensors_stay_real",
            "tests/passage/test_pipeline.py::test_exactly_the_logits_of_one_process",
            "tests/passage/test_pipeline.py::test_inputs_embeds_in_place_of_tokens",
        ),
    },
    "program 2": {
        "a fake of batch 1 stands for whatever is received, and that changes from run to run": (
            "tests/passage/test_pipeline.py::test_the_fake_batch_may_be_another_than_the_received_one",
            "tests/passage/test_pipeline.py::test_blocks_before_the_first_real_one_run_once_a_shape_and_none_behind_the_last",
        ),
        "the first real block's reducer gets the whole original call, keywords too": (
            "tests/passage/test_pipeline.py::test_the_reducer_gets_the_calls_full_original",
            "tests/passage/test_overrides.py::test_the_seeds_reducer_keeps_the_other_arguments",
        ),
    },
    "program 3": {
        "a middle rank knots without an external boundary": (
            "tests/engine/test_remote.py::test_a_middle_rank_knots_without_an_external_boundary",
            "tests/engine/test_remote.py::test_it_copies_and_pickles",
        ),
        "alone, the same program knots and runs without a process group": (
            "tests/passage/test_pipeline.py::test_the_same_program_at_world_size_one",
        ),
    },
    "program 5": {
        "the early exit keeps norm and head from running on all parts of a pipeline but the last": (
            "tests/passage/test_pipeline.py::test_blocks_before_the_first_real_one_run_once_a_shape_and_none_behind_the_last",
        ),
        "hooks on a part's own blocks fire once a batch, on real values": (
            "tests/passage/test_pipeline.py::test_hooks_on_own_blocks_fire_once_a_batch_on_real_values",
        ),
    },
    "program 6": {
        "isinstance, parameters, eval and cpu work as on any module": (
            "tests/passage/test_pristine.py::test_a_stitched_real_model_copies_and_trains_like_its_own",
            "tests/test_module_duties.py::test_train_and_eval_reach_everything",
        ),
        "the name with lm_head in it leads to the head itself": (
            "tests/passage/test_pipeline.py::test_the_same_program_at_world_size_one",
            "tests/passage/test_pristine.py::test_a_stitched_real_model_copies_and_trains_like_its_own",
        ),
    },
    "program 7": {
        "no_grad and CPU autocast reach every node": (
            "tests/engine/test_inline.py::test_grad_mode_and_autocast_reach_every_node",
            "tests/passage/test_early_exit.py::test_autocast_inside_and_around",
            "tests/passage/test_gradients.py::test_none_where_none_are_wanted",
            "tests/passage/test_pipeline.py::test_under_autocast",
        ),
    },
    "program 8": {
        "captured model outputs and caches keep their type": (
            "tests/passage/test_captures.py::test_model_outputs_and_caches_keep_their_type",
            "tests/passage/test_pristine.py::test_hidden_states_asked_of_a_run_are_those_of_a_plain_call",
        ),
        "gradients reach the teacher": (
            "tests/passage/test_gradients.py::test_through_functions_reducers_and_adapters",
            "tests/passage/test_gradients.py::test_across_two_modules_in_the_middle",
        ),
    },
}
