"""Corners."""

from __future__ import annotations

CORNERS: dict[str, dict[str, tuple[str, ...]]] = {
    "corner 1": {
        "from_value spreads list and tuple, of exactly these types": (
            "tests/graph/test_args.py::test_from_value_spreads_exactly_list_and_tuple",
        ),
        "a named tuple, a Size, a PackedSequence and a string are one value": (
            "tests/graph/test_args.py::test_from_value_makes_everything_else_one_positional",
            "tests/passage/test_kinds_of_module.py::test_packed_sequences_are_one_value",
        ),
    },
    "corner 2": {
        "from an input to an output an InputArgs stays one": (
            "tests/engine/test_values.py::test_from_an_input_to_an_output_an_input_args_stays_what_it_is",
        ),
        "the list of all calls crosses as one value": (
            "tests/passage/test_calls.py::test_all_calls_cross_to_an_input_as_one_value",
        ),
    },
    "corner 3": {
        "calls count by their start": ("tests/passage/test_calls.py::test_calls_count_by_their_start",),
        "in one forward": (
            "tests/passage/test_calls.py::test_counts_belong_to_one_run",
            "tests/passage/test_nested.py::test_counts_are_each_passages_own",
        ),
        "of the module object: its names share the count": (
            "tests/passage/test_calls.py::test_each_call_the_last_one_and_all",
            "tests/passage/test_calls.py::test_an_override_of_one_call",
        ),
    },
    "corner 4": {
        "hooks of a skipped submodule do not run": (
            "tests/passage/test_user_hooks.py::test_hooks_of_a_skipped_submodule_and_of_what_is_in_it_do_not_run",
        ),
        "its input can be captured: what the caller passed": (
            "tests/passage/test_skipping.py::test_a_skipped_submodules_input_is_what_the_caller_passes",
            "tests/graph/test_ports.py::test_the_input_of_what_is_skipped_can_be_captured",
        ),
    },
    "corner 5": {
        "a source's adapter runs at the capture": (
            "tests/passage/test_behaviour_gaps.py::test_adapters_and_reducers_run_when_it_is_their_turn",
            "tests/passage/test_in_place.py::test_a_clone_is_the_remedy",
        ),
        "in the thread that captures": (
            "tests/passage/test_behaviour_gaps.py::test_a_sources_adapter_runs_in_the_thread_of_the_submodule",
        ),
        "a destination's adapter runs once, when its consumer is fired": (
            "tests/passage/test_behaviour_gaps.py::test_adapters_and_reducers_run_when_it_is_their_turn",
            "tests/engine/test_values.py::test_a_destination_adapter_runs_once_a_stitch",
            "tests/passage/test_in_place.py::test_a_clone_at_the_destination_comes_too_late",
        ),
        "reducers of a submodule's port run in the forward, at each overridden call, with its original": (
            "tests/passage/test_calls.py::test_reducers_are_called_at_each_overridden_call_with_that_calls_original",
            "tests/passage/test_behaviour_gaps.py::test_adapters_and_reducers_run_when_it_is_their_turn",
        ),
    },
    "corner 6": {
        "a wrong type from an adapter raises, with the port": (
            "tests/engine/test_values.py::test_at_an_input_adapters_and_reducers_must_give_arguments",
            "tests/passage/test_overrides.py::test_an_inputs_adapter_that_returns_no_arguments_is_named",
        ),
        "a wrong type from a reducer raises, with the port": (
            "tests/passage/test_overrides.py::test_an_inputs_reducer_that_returns_no_arguments_is_named",
            "tests/engine/test_values.py::test_a_reducer_at_a_later_place_is_named_too",
        ),
    },
    "corner 7": {
        "the grad mode is put back, also where a forward that toggled it was left": (
            "tests/passage/test_early_exit.py::test_a_grad_mode_toggled_by_hand_is_put_back",
            "tests/passage/test_early_exit.py::test_a_grad_mode_toggled_by_hand_is_put_back_for_the_next_node",
            "tests/passage/test_early_exit.py::test_a_grad_mode_toggled_by_hand_is_put_back_where_the_forward_raised",
        ),
    },
    "corner 8": {
        "the outer passage sees the calls that a run inside a forward makes": (
            "tests/passage/test_nested.py::test_the_outer_passage_sees_the_inner_runs_calls",
            "tests/passage/test_nested.py::test_the_outer_passage_overrides_what_the_inner_run_sees",
        ),
    },
    "corner 9": {
        "a class with a __call__ of its own is no port, and the refusal says why": (
            "tests/graph/test_ports.py::test_a_class_with_a_call_of_its_own_is_refused",
            "tests/passage/test_kinds_of_module.py::test_call_of_its_own_is_refused_with_the_reason",
        ),
        "compiled modules and traced graphs pass through": (
            "tests/graph/test_ports.py::test_traced_graphs_and_compiled_modules_pass_through",
            "tests/passage/test_kinds_of_module.py::test_call_of_its_own_of_graph_modules_passes_through",
            "tests/passage/test_compiled.py::test_the_target_itself_is_a_compiled_module",
        ),
        "checkpointed layers of transformers pass through": (
            "tests/passage/test_torch_canary.py::test_transformers_checkpointed_layers_pass_through",
            "tests/passage/test_checkpointing.py::test_a_real_model_captured_under_the_non_reentrant_kind",
        ),
        "passes_through adds a class": (
            "tests/graph/test_ports.py::test_a_class_can_be_said_to_pass_through",
            "tests/passage/test_kinds_of_module.py::test_call_of_its_own_that_is_said_to_pass_through",
        ),
    },
    "corner 10": {
        "a constant's value is read in every run": (
            "tests/engine/test_values.py::test_a_constant_is_read_in_every_run",
            "tests/test_module_duties.py::test_a_value_that_the_user_gives_a_constant_comes_first",
        ),
        "a Parameter or a module is registered; a plain tensor is not, and does not move": (
            "tests/test_module_duties.py::test_a_constant_parameter_or_module_is_registered_and_a_plain_tensor_is_not",
        ),
    },
    "corner 11": {
        "an asynchronous run awaits what a plain function returned to be awaited": (
            "tests/engine/test_run.py::test_an_awaitable_from_a_plain_function_is_awaited",
        ),
        "a synchronous call refuses what would be awaited, with node and remedy": (
            "tests/engine/test_inline.py::test_what_a_function_gives_to_await_is_refused_with_the_remedy",
            "tests/test_open_cases_graph.py::test_what_a_plain_function_gives_to_await_is_for_asynchronous_runs",
        ),
    },
    "corner 12": {
        "in an asynchronous run a node's own cancellation or StopIteration becomes the graph's exception": (
            "tests/engine/test_run.py::test_stop_iteration_and_a_node_that_cancels_itself",
        ),
        "a synchronous call raises what the node raised, whatever it is": (
            "tests/engine/test_node_errors.py::test_the_very_exception_arrives_from_a_function",
            "tests/engine/test_node_errors.py::test_the_very_exception_arrives_from_a_module",
            "tests/test_open_cases_graph.py::test_node_that_raises_cancelled",
            "tests/test_open_cases_graph.py::test_stop_iteration_in_a_thread",
        ),
    },
    "corner 13": {
        "an asynchronous run keeps each node's context variables from the others": (
            "tests/engine/test_run.py::test_contexts_are_the_callers",
        ),
        "in a synchronous call a node sets the caller's context variables": (
            "tests/engine/test_inline.py::test_a_node_sees_and_sets_the_callers_context",
            "tests/test_open_cases_graph.py::test_contextvars_of_nodes",
        ),
    },
    "corner 14": {
        "a result's item is the captured output, else the captured input": (
            "tests/test_overrides.py::test_by_name_the_output_else_the_input",
            "tests/test_overrides.py::test_a_result_that_is_none_is_a_result",
        ),
        "where there are both it raises and says how to ask": (
            "tests/test_overrides.py::test_a_name_that_is_both_is_ambiguous",
        ),
    },
    "corner 15": {
        "an item of a stream is a mapping of input overrides or a tuple of arguments": (
            "tests/engine/test_stream.py::test_an_async_source_and_tuples",
            "tests/engine/test_stream.py::test_a_source_that_raises_and_items_that_are_none",
        ),
    },
    "corner 16": {
        "a StitchedModule pickles and deep-copies where its parts do": (
            "tests/test_copies.py::test_a_copy_says_and_gives_the_same",
            "tests/test_copies.py::test_what_does_not_pickle_says_so_as_pickle_does",
            "tests/test_copies.py::test_pickled_to_a_spawned_process",
        ),
        "a copy shares nothing": (
            "tests/test_copies.py::test_a_copy_shares_nothing",
            "tests/test_copies.py::test_gradients_flow_in_a_copy_into_the_copys_parameters",
        ),
        "a forked child runs it as new": (
            "tests/test_copies.py::test_a_forked_child_runs_it_as_new",
            "tests/test_open_cases_graph.py::test_fork_after_use",
        ),
    },
}
