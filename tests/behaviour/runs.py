"""A run."""

from __future__ import annotations

RUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "run 0": {
        "input overrides pass through from_value, output overrides are one value": (
            "tests/engine/test_values.py::test_input_overrides_pass_through_from_value",
            "tests/engine/test_values.py::test_output_overrides_are_one_value",
        ),
        "every module is called with the run's arguments": (
            "tests/engine/test_values.py::test_every_module_gets_the_runs_arguments",
            "tests/passage/test_captures.py::test_every_module_gets_the_runs_arguments",
        ),
        "an override of a module's own input replaces them": (
            "tests/passage/test_captures.py::test_every_module_gets_the_runs_arguments",
            "tests/graphs/test_naive.py::test_an_override_of_the_root_replaces_the_arguments_of_the_call",
        ),
        "the result is a StitchedModuleOutput": (
            "tests/test_behaviour_gaps.py::test_a_run_gives_a_stitched_module_output",
            "tests/test_overrides.py::test_the_result_stands_in_the_order_of_the_stitches",
        ),
        "a target that nobody reads from runs": (
            "tests/passage/test_captures.py::test_a_target_with_no_outgoing_stitch_still_runs",
            "tests/engine/test_values.py::test_a_function_without_stitches_from_it_still_runs",
            "tests/test_open_cases_graph.py::test_targets_without_stitches",
        ),
    },
    "run 1": {
        "the dicts have exactly the names that the graph takes": (
            "tests/test_overrides.py::test_exactly_the_names_that_the_graph_takes",
            "tests/test_overrides.py::test_a_name_in_the_other_dict",
        ),
        "extra names can be ignored": ("tests/test_overrides.py::test_ignoring_extra_names",),
        "a missing one never is": ("tests/test_overrides.py::test_a_missing_name_is_always_an_error",),
        "differs: the exception lists what is missing and extra, and says the nearest": (
            "tests/test_overrides.py::test_missing_names_are_listed",
            "tests/test_overrides.py::test_extra_names_are_listed_with_the_nearest",
        ),
        "differs: it is no bare assert": ("tests/test_overrides.py::test_it_is_no_bare_assert_and_no_bare_key_error",),
    },
    "run 2": {
        "with early exit a forward is left as soon as all that is wanted was captured": (
            "tests/passage/test_early_exit.py::test_what_runs",
            "tests/passage/test_early_exit.py::test_a_container_submodule_is_left_in_the_middle",
            "tests/passage/test_early_exit.py::test_results_are_the_same_with_and_without",
        ),
        "where nothing is wanted it runs fully": ("tests/passage/test_early_exit.py::test_what_runs",),
        "it never leaves through DDP": (
            "tests/passage/test_ranks.py::test_ddp_gradients_are_reduced_behind_an_early_exit",
            "tests/passage/test_ranks.py::test_ddp_gradients_are_reduced_where_its_last_submodule_is_captured",
            "tests/passage/test_ranks.py::test_ddp_around_a_part_finishes_and_the_rest_is_left",
        ),
        "nor through FSDP": (
            "tests/passage/test_ranks.py::test_fsdp1_gradients_are_reduced_behind_an_early_exit",
            "tests/passage/test_ranks.py::test_fsdp2_gradients_are_reduced_behind_an_early_exit",
        ),
        "nor through what accelerate has hooked": (
            "tests/passage/test_behaviour_gaps.py::test_a_forward_that_was_exchanged_as_accelerate_does_it_finishes",
        ),
        "differs: it is left before a submodule of which only the input is wanted": (
            "tests/passage/test_early_exit.py::test_what_runs",
            "tests/passage/test_wrappers.py::test_captured_in_front_of_it_the_forward_is_left_in_front_of_it",
        ),
        "differs: model code that catches Exception does not swallow the signal": (
            "tests/passage/test_early_exit.py::test_except_exception_cant_swallow_the_signal",
            "tests/passage/test_early_exit.py::test_code_that_swallows_everything_gets_right_results",
        ),
        "differs: a submodule that is called twice ends nothing while another capture is missing": (
            "tests/passage/test_early_exit.py::test_a_submodule_called_twice_cant_end_the_forward_with_another_capture_missing",
        ),
    },
    "run 3": {
        "the first run of a shape keeps a fake copy of what the named submodules returned": (
            "tests/passage/test_fake.py::test_the_answer_is_a_fake_copy_of_what_it_returned",
            "tests/passage/test_fake.py::test_a_run_on_real_values_is_kept_too",
        ),
        "called with fakes, they are skipped in later runs": (
            "tests/passage/test_fake.py::test_the_answer_is_a_fake_copy_of_what_it_returned",
            "tests/passage/test_fake.py::test_a_submodule_without_the_predicate_runs_on_fakes_every_time",
        ),
        "unless the graph wants something of them or of what is in them": (
            "tests/passage/test_fake.py::test_what_the_graph_wants_something_of_is_never_skipped",
        ),
        "what is in front of a rank's first block runs once a shape": (
            "tests/passage/test_pipeline.py::test_blocks_before_the_first_real_one_run_once_a_shape_and_none_behind_the_last",
        ),
        "fake_tensor takes its arguments as torch.empty does": (
            "tests/passage/test_fake.py::test_sizes_as_numbers_or_one_sequence",
            "tests/passage/test_fake.py::test_dtype",
            "tests/test_core_api.py::test_further_fixed_names",
        ),
        "its device is the one asked for, or the default one": (
            "tests/passage/test_fake.py::test_the_device_asked_for_and_never_meta",
            "tests/passage/test_fake.py::test_the_default_dtype_and_device",
            "tests/passage/test_fake.py::test_a_default_device_set_around",
        ),
        "it has no data": ("tests/passage/test_fake.py::test_it_has_no_data_and_needs_no_memory",),
        "fakes inside a captured input come out as None": (
            "tests/passage/test_pipeline.py::test_a_captured_inputs_fakes_come_out_as_none",
            "tests/passage/test_behaviour_gaps.py::test_fakes_deep_in_a_captured_input_come_out_as_none",
        ),
        "differs: a captured output that is fake is an error with port and reason": (
            "tests/passage/test_pipeline.py::test_a_captured_output_that_is_fake_is_an_error_naming_port_and_why",
        ),
        "differs: the cache belongs to one StitchedModule": (
            "tests/passage/test_fake.py::test_the_cache_belongs_to_one_stitched_module_and_its_copies_start_without",
            "tests/passage/test_pipeline.py::test_two_graphs_on_one_model_have_a_cache_each",
            "tests/passage/test_pipeline.py::test_two_models_with_the_same_names",
        ),
        "differs: its key says the port": (
            "tests/passage/test_behaviour_gaps.py::test_the_cache_tells_ports_apart_that_are_called_alike",
        ),
        "differs: its key says shapes, dtypes and devices": (
            "tests/passage/test_fake.py::test_the_key_tells_inputs_apart",
            "tests/passage/test_fake.py::test_the_key_tells_other_arguments_apart",
        ),
    },
    "run 4": {
        "a captured input is what the caller passes": (
            "tests/passage/test_user_hooks.py::test_hooks_that_return_values_before_the_forward",
            "tests/passage/test_user_hooks.py::test_keywords_that_a_hook_adds_are_not_the_callers",
        ),
        "a captured output is the object that the caller receives": (
            "tests/passage/test_captures.py::test_a_captured_output_is_the_very_object_whatever_its_type",
            "tests/passage/test_user_hooks.py::test_hooks_that_return_values_behind_the_forward",
        ),
        "the user's hooks run inside the port, on overridden inputs too": (
            "tests/passage/test_user_hooks.py::test_hooks_that_return_values_before_the_forward",
            "tests/passage/test_user_hooks.py::test_backward_hooks_on_an_overridden_input_see_the_overrides_gradient",
        ),
        "an override of an output replaces what the caller receives": (
            "tests/passage/test_overrides.py::test_an_output_at_every_level",
            "tests/passage/test_user_hooks.py::test_hooks_that_return_values_behind_the_forward",
        ),
        "keywords count like positionals": (
            "tests/passage/test_captures.py::test_keyword_arguments_count_like_positional_ones",
            "tests/passage/test_captures.py::test_keywords_named_like_plumbing",
        ),
        "where a port is overridden and captured, the capture sees the override": (
            "tests/passage/test_overrides.py::test_an_input_at_every_level",
            "tests/passage/test_overrides.py::test_an_output_at_every_level",
            "tests/passage/test_overrides.py::test_input_and_output_of_one_submodule",
        ),
    },
    "run 5": {
        "differs: a captured value is the object itself": (
            "tests/passage/test_captures.py::test_the_objects_of_caller_and_callee_themselves",
        ),
        "differs: the module changing it in place raises, with port and remedy": (
            "tests/passage/test_in_place.py::test_an_activation_in_place_behind_a_captured_layer_raises_with_the_remedy",
            "tests/passage/test_in_place.py::test_input_of_an_in_place_module",
            "tests/passage/test_in_place.py::test_in_place_hidden_behind_a_view",
            "tests/passage/test_in_place.py::test_a_clone_is_the_remedy",
        ),
        "differs: a consumer changing a delivered tensor that others need raises": (
            "tests/engine/test_in_place.py::test_a_consumer_that_changes_what_another_still_needs",
            "tests/engine/test_in_place.py::test_the_caller_is_a_consumer_who_still_needs_it",
            "tests/passage/test_in_place.py::test_an_override_that_somebody_else_still_needs",
            "tests/engine/test_in_place.py::test_the_last_consumer_may_change_what_it_got",
        ),
        "tensors in list, tuple, dict and InputArgs count": (
            "tests/passage/test_in_place.py::test_in_place_hidden_in_a_structure",
            "tests/engine/test_in_place.py::test_a_tensor_in_a_container",
            "tests/engine/test_in_place.py::test_a_tensor_among_arguments",
            "tests/device/test_versions.py::test_a_change_inside_a_container_is_seen",
        ),
        "tensors in other objects do not": (
            "tests/passage/test_in_place.py::test_inside_other_objects_is_theirs",
            "tests/engine/test_in_place.py::test_a_tensor_inside_another_object_is_the_objects_affair",
        ),
        "inference tensors have no counter": (
            "tests/passage/test_in_place.py::test_inference_tensors_have_no_version",
            "tests/engine/test_in_place.py::test_inference_tensors_have_no_counter",
        ),
    },
    "run 6": {
        "differs: a capture that a finished forward did not pass raises": (
            "tests/passage/test_not_reached.py::test_a_capture_that_was_not_called_for_this_input",
            "tests/passage/test_not_reached.py::test_all_that_was_missed_is_named_at_once",
        ),
        "differs: an override that a finished forward did not use raises": (
            "tests/passage/test_not_reached.py::test_an_override_in_vain",
            "tests/passage/test_not_reached.py::test_an_override_in_vain_where_nothing_is_wanted",
        ),
        "it names as a cause: not called for this input": (
            "tests/passage/test_not_reached.py::test_a_capture_that_was_not_called_for_this_input",
        ),
        "it names as a cause: inside a submodule whose output is overridden": (
            "tests/passage/test_not_reached.py::test_inside_a_submodule_whose_output_is_overridden_by_another_name",
        ),
        "it names as a cause: the fused fast path": (
            "tests/passage/test_not_reached.py::test_the_fused_fast_path_of_a_transformer_layer",
            "tests/passage/test_not_reached.py::test_the_fast_path_of_a_whole_encoder",
        ),
        "it names as a cause: forward called directly": (
            "tests/passage/test_not_reached.py::test_a_direct_call_of_forward",
        ),
        "it names as a cause: replaced after the knot": (
            "tests/passage/test_not_reached.py::test_replaced_after_the_knot",
            "tests/passage/test_not_reached.py::test_removed_or_wrapped_after_the_knot",
        ),
        "an override behind an early exit's last capture is no error": (
            "tests/passage/test_not_reached.py::test_behind_the_last_capture_of_an_early_exit_is_no_error",
            "tests/passage/test_early_exit.py::test_an_override_behind_a_swallowed_exit_is_no_error",
        ),
    },
    "run 7": {
        "a tied submodule answers to each of its names": (
            "tests/passage/test_overrides.py::test_alias_of_a_module_answers_to_every_name",
            "tests/passage/test_overrides.py::test_alias_of_a_module_overridden_by_two_names_meets_in_stitch_order",
            "tests/graphs/test_naive.py::test_a_tied_module_answers_to_all_its_names",
        ),
    },
    "run 8": {
        "differs: call= picks the call that is captured, by number, the last one or all as a list": (
            "tests/passage/test_calls.py::test_each_call_the_last_one_and_all",
            "tests/graph/test_check.py::test_values_of_call_for_a_capture",
        ),
        "differs: without it a capture is of the first call": (
            "tests/passage/test_calls.py::test_each_call_the_last_one_and_all",
        ),
        "an override is of every call": ("tests/passage/test_calls.py::test_an_override_applies_to_every_call",),
        "with call=k it is of that one": (
            "tests/passage/test_calls.py::test_an_override_of_one_call",
            "tests/passage/test_calls.py::test_override_by_call_and_capture_of_the_rest",
        ),
        "an override of the last call is refused at the knot": (
            "tests/graph/test_check.py::test_which_call_is_the_last_is_not_known_ahead",
        ),
    },
    "run 9": {
        "gradients flow through every stitch": (
            "tests/passage/test_gradients.py::test_across_two_modules_in_the_middle",
            "tests/passage/test_gradients.py::test_through_functions_reducers_and_adapters",
            "tests/engine/test_inline.py::test_gradients_flow_through_functions_adapters_reducers_and_constants",
            "tests/graphs/test_naive.py::test_gradients_reach_what_was_given_and_every_parameter_on_the_way",
        ),
        "an override under checkpointing raises while gradients are wanted": (
            "tests/passage/test_checkpointing.py::test_an_override_reached_under_checkpointing_raises",
            "tests/passage/test_checkpointing.py::test_an_override_is_fine_where_no_gradients_are_wanted",
        ),
        "so does a capture under the re-entrant kind": (
            "tests/passage/test_checkpointing.py::test_a_capture_under_the_reentrant_kind_raises",
            "tests/passage/test_checkpointing.py::test_a_capture_under_the_non_reentrant_kind_is_right",
        ),
    },
    "run 10": {
        "a stitch's value is let go with its last consumer": (
            "tests/engine/test_memory.py::test_a_value_that_several_need_lives_until_the_last_has_it",
            "tests/engine/test_memory.py::test_a_chain_of_50_keeps_at_most_three_values",
            "tests/passage/test_lifetimes.py::test_a_captured_value_goes_with_its_last_consumer",
        ),
    },
    "run 11": {
        "runs of one graph may be under way at once in asyncio and trio": (
            "tests/engine/test_run.py::test_many_runs_at_once",
        ),
        "differs: runs of one graph, from many threads at once, keep to themselves": (
            "tests/passage/test_threads.py::test_overriding_observing_and_plain_calls_of_one_model",
            "tests/engine/test_inline.py::test_runs_from_many_threads_keep_to_themselves",
            "tests/engine/test_inline.py::test_a_run_within_a_run_of_the_same_graph",
        ),
        "differs: so do runs of several that share modules": (
            "tests/passage/test_threads.py::test_graphs_that_share_modules_and_end_at_different_times",
        ),
        "a run is kept out of none by an event loop that runs": (
            "tests/engine/test_inline.py::test_a_synchronous_call_works_where_a_loop_runs",
        ),
        "between runs a module has its type, its dict and no hooks of ours, also after a run that failed": (
            "tests/passage/test_pristine.py::test_nothing_can_be_seen_of_it",
            "tests/passage/test_touch.py::test_exceptions_as_they_are_and_nothing_left_behind",
        ),
        "it pickles and deep-copies as before, also after a run that failed": (
            "tests/passage/test_pristine.py::test_what_is_saved_of_it_is_the_same",
            "tests/passage/test_pristine.py::test_a_deep_copy_made_during_a_run_is_an_independent_plain_model",
        ),
    },
}
