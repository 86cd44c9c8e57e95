"""The picture, and what a stitch carries."""

from __future__ import annotations

PICTURE: dict[str, dict[str, tuple[str, ...]]] = {
    "picture 1": {
        "modules, functions and constants are targets with ports, and stitches join them": (
            "tests/test_needle.py::test_a_whole_graph_of_every_kind_of_target",
            "tests/graph/test_targets.py::test_targets_offer_the_ports_that_they_have",
            "tests/test_needle.py::test_only_ports_can_be_stitched",
        ),
        "a port carries its target, name, adapter, reducer and call": (
            "tests/graph/test_targets.py::test_ports_carry_what_they_were_given",
        ),
        "stitch joins two ports and gives the needle back": (
            "tests/test_needle.py::test_a_node_knows_the_stitches_at_both_its_ends",
            "tests/test_needle.py::test_stitch_returns_the_needle",
        ),
        "knot checks the graph and gives an nn.Module": (
            "tests/test_module_duties.py::test_inside_another_module",
            "tests/graph/test_check.py::test_every_refusal_is_a_knot_exception",
            "tests/test_core_api.py::test_bases",
        ),
        "names, signatures and defaults are those of the seed's API": (
            "tests/test_core_api.py::test_core_exports_the_seeds_names_and_input_args",
            "tests/test_core_api.py::test_constructor",
            "tests/test_core_api.py::test_methods",
            "tests/test_core_api.py::test_fields",
            "tests/test_core_api.py::test_functions",
        ),
        "a call of it runs every target once": ("tests/engine/test_inline.py::test_each_target_fires_once_a_run",),
    },
    "picture 2": {
        "port names of a module are the submodule paths that torch gives, doubles included": (
            "tests/graph/test_ports.py::test_names_are_those_of_named_modules",
            "tests/graph/test_ports.py::test_paths_of_shared_submodules_are_all_there",
        ),
        "the empty name is the module itself, a path reaches into its middle": (
            "tests/passage/test_captures.py::test_every_level_at_once",
            "tests/passage/test_captures.py::test_inside_containers_that_are_never_called",
        ),
    },
    "picture 3": {
        "a submodule's input as a source gives the arguments of its call": (
            "tests/passage/test_captures.py::test_the_objects_of_caller_and_callee_themselves",
            "tests/engine/test_values.py::test_a_modules_captured_input_goes_on_as_the_arguments_that_they_are",
        ),
        "as a destination it replaces them": (
            "tests/passage/test_overrides.py::test_an_input_at_every_level",
            "tests/passage/test_overrides.py::test_an_override_replaces_all_arguments",
        ),
    },
    "picture 4": {
        "a submodule's output as a source gives what it returned": (
            "tests/passage/test_captures.py::test_a_captured_output_is_the_very_object_whatever_its_type",
        ),
        "as a destination it replaces that": (
            "tests/passage/test_overrides.py::test_an_output_at_every_level",
            "tests/passage/test_overrides.py::test_an_output_overrides_a_tuple_as_one_value",
        ),
    },
    "picture 5": {
        "a stitch to a function adds to its arguments, and its input is no source": (
            "tests/engine/test_values.py::test_stitches_fill_one_calls_arguments_in_stitch_order",
            "tests/graph/test_check.py::test_sources",
        ),
    },
    "picture 6": {
        "a function's result and a constant's value are sources, and no destinations": (
            "tests/engine/test_values.py::test_values_are_the_objects_themselves",
            "tests/engine/test_values.py::test_a_constant_is_the_object_itself",
            "tests/graph/test_check.py::test_destinations",
        ),
    },
    "picture 7": {
        "external ports are the caller's overrides as sources and the captured values as destinations": (
            "tests/test_overrides.py::test_external_names_in_four_roles",
            "tests/engine/test_values.py::test_from_the_caller_to_the_caller",
        ),
    },
    "picture 8": {
        "a remote's value may be stitched from and to": (
            "tests/graph/test_check.py::test_sources",
            "tests/graph/test_check.py::test_destinations",
            "tests/engine/test_remote.py::test_it_can_be_looked_at",
        ),
        "where there is no transport, a run says so": (
            "tests/engine/test_remote.py::test_running_one_says_that_this_process_belongs_to_no_world",
        ),
    },
    "picture 9": {
        "a call as a value has a list of positionals and a dict of keywords": (
            "tests/graph/test_args.py::test_args_are_a_list_and_kwargs_a_dict",
            "tests/graph/test_args.py::test_keywords_of_any_name",
        ),
        "plus joins positionals, and the right one's keywords win": (
            "tests/graph/test_args.py::test_plus_joins_positionals_and_lets_the_right_ones_keywords_win",
        ),
        "drop_args gives a copy without some positionals, or without any": (
            "tests/graph/test_args.py::test_drop_args_drops_what_del_would",
            "tests/graph/test_args.py::test_drop_args_of_none_drops_them_all",
        ),
        "drop_kwargs gives a copy without some keywords or any, and absent names do not matter": (
            "tests/graph/test_args.py::test_drop_kwargs_ignores_absent_names",
            "tests/graph/test_args.py::test_drop_kwargs_of_none_drops_them_all",
        ),
        "from_value lets an InputArgs through": (
            "tests/graph/test_args.py::test_from_value_passes_an_input_args_through",
        ),
        "from_value spreads a list or a tuple": (
            "tests/graph/test_args.py::test_from_value_spreads_exactly_list_and_tuple",
        ),
        "from_value wraps everything else as one positional": (
            "tests/graph/test_args.py::test_from_value_makes_everything_else_one_positional",
        ),
        "differs: str and bytes are one value": (
            "tests/graph/test_args.py::test_from_value_makes_everything_else_one_positional",
            "tests/engine/test_values.py::test_input_overrides_pass_through_from_value",
        ),
    },
}

STITCHES: dict[str, dict[str, tuple[str, ...]]] = {
    "stitch 1": {
        "the source port's adapter maps what the source yields": (
            "tests/engine/test_values.py::test_a_source_adapter_runs_once_a_descriptor",
            "tests/passage/test_captures.py::test_one_port_feeds_many",
        ),
    },
    "stitch 2": {
        "the destination port's adapter maps it after that": (
            "tests/engine/test_values.py::test_the_sources_adapter_comes_first_then_the_destinations",
            "tests/engine/test_values.py::test_adapters_between_inputs_and_between_outputs_of_the_boundary",
        ),
    },
    "stitch 3": {
        "differs: stitches of one port meet in the order of stitching, whenever their sources fire": (
            "tests/engine/test_values.py::test_reducers_at_the_boundary_meet_in_stitch_order_not_firing_order",
            "tests/graphs/test_random_graphs.py::test_only_the_order_of_the_stitches_of_one_port_matters",
            "tests/graphs/test_naive.py::test_stitches_on_one_port_meet_in_stitch_order",
            "tests/passage/test_overrides.py::test_several_stitches_on_a_port_meet_in_the_order_in_which_they_were_stitched",
        ),
        "several stitches meet on one remote's key in that order": (
            "tests/graph/test_check.py::test_several_stitches_meet_on_one_targets_key",
        ),
        "each descriptor's own reducer is called in turn": (
            "tests/engine/test_values.py::test_each_stitch_reduces_by_its_own_reducer",
            "tests/builtin/test_reducers.py::test_each_stitch_reduces_by_its_own_name",
        ),
        "a reducer is called with accumulator, value, original, index and all values": (
            "tests/engine/test_values.py::test_an_input_reducer_is_called_in_turn_with_everything",
            "tests/engine/test_values.py::test_an_output_reducer_is_called_in_turn_with_everything",
            "tests/test_core_api.py::test_reducers_are_called_with_five_arguments",
        ),
        "at an input the accumulator starts empty and the default adds up one call's arguments": (
            "tests/engine/test_values.py::test_an_input_reducer_is_called_in_turn_with_everything",
            "tests/engine/test_values.py::test_stitches_fill_one_calls_arguments_in_stitch_order",
            "tests/engine/test_values.py::test_the_later_stitch_wins_a_keyword",
        ),
        "the original at an input is what the submodule was called with, and empty at a function": (
            "tests/passage/test_overrides.py::test_an_inputs_reducer_gets_the_calls_full_original",
            "tests/engine/test_values.py::test_an_input_reducer_is_called_in_turn_with_everything",
        ),
        "at an output the accumulator starts as None and the default takes the newest": (
            "tests/engine/test_values.py::test_an_output_reducer_is_called_in_turn_with_everything",
            "tests/engine/test_values.py::test_the_default_at_an_output_takes_the_newest",
        ),
        "an output reducer sees the original where one on the port requires it; then the submodule runs": (
            "tests/passage/test_overrides.py::test_an_originals_mixture_of_reducers",
            "tests/passage/test_skipping.py::test_a_required_original_makes_it_run_once_a_call",
        ),
        "where none requires it, the submodule's forward is not run": (
            "tests/passage/test_skipping.py::test_a_skipped_forward_is_not_run_nor_what_is_in_it",
            "tests/passage/test_skipping.py::test_a_skipped_forward_may_be_one_that_cant_run",
            "tests/passage/test_skipping.py::test_the_whole_module_can_be_skipped",
        ),
    },
    "stitch 4": {
        "differs: from an output to an input, a value that is no InputArgs is one positional": (
            "tests/engine/test_values.py::test_from_an_output_to_an_input_a_value_is_one_positional",
            "tests/builtin/test_adapters.py::test_without_it_a_tuple_stays_one_argument",
        ),
        "the destination's adapter may still make arguments of it": (
            "tests/engine/test_values.py::test_from_an_output_to_an_input_an_input_args_stays_arguments",
            "tests/engine/test_values.py::test_a_destination_adapter_sees_the_value_not_yet_wrapped",
            "tests/builtin/test_adapters.py::test_args_spreads_what_from_value_spreads",
        ),
    },
    "stitch 5": {
        "differs: each call of stitch is a stitch of its own, so f(x, x) has two arguments": (
            "tests/engine/test_values.py::test_f_of_x_and_x_is_two_stitches",
            "tests/test_needle.py::test_many_stitches_of_descriptors_that_nobody_else_keeps",
        ),
        "the very same two descriptors are one stitch": (
            "tests/engine/test_values.py::test_the_very_same_two_descriptors_are_one_stitch",
            "tests/test_needle.py::test_only_the_very_same_two_objects_are_the_same_stitch",
        ),
        "one descriptor may be in several stitches": (
            "tests/passage/test_captures.py::test_one_port_feeds_many",
            "tests/engine/test_values.py::test_one_descriptor_is_source_of_one_stitch_and_destination_of_another",
        ),
    },
    "stitch 6": {
        "adapters that are modules are registered": (
            "tests/test_module_duties.py::test_a_module_at_every_place",
            "tests/test_module_duties.py::test_an_adapter_that_is_inside_a_target_or_in_several_ports_is_there_once",
        ),
        "differs: reducers and functions that are modules are registered too": (
            "tests/test_module_duties.py::test_a_module_at_every_place",
            "tests/engine/test_values.py::test_a_reducer_may_be_a_module_and_a_bare_function",
        ),
        "to, parameters, state_dict and train reach all of them": (
            "tests/test_module_duties.py::test_to_reaches_everything_that_is_registered",
            "tests/test_module_duties.py::test_train_and_eval_reach_everything",
            "tests/test_module_duties.py::test_state_dict_round_trip",
            "tests/test_module_duties.py::test_an_optimizer_trains_what_runs",
        ),
    },
}
