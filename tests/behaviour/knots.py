"""Checks when the knot is tied."""

from __future__ import annotations

KNOTS: dict[str, dict[str, tuple[str, ...]]] = {
    "knot 0": {
        "what a knot refuses is one family of exceptions": (
            "tests/graph/test_check.py::test_every_refusal_is_a_knot_exception",
            "tests/test_needle.py::test_every_knot_exception_is_one",
            "tests/test_core_api.py::test_further_exceptions_derive_from_a_family_and_a_builtin",
        ),
        "a refusal names the targets and the ports": (
            "tests/graph/test_ports.py::test_an_unknown_name_is_refused_for_every_use",
            "tests/graph/test_check.py::test_a_graph_of_internal_nodes_only",
            "tests/graph/test_ports.py::test_a_port_inside_what_never_runs",
        ),
        "a refusal leaves everything as it was": (
            "tests/graph/test_check.py::test_a_refused_knot_changes_nothing",
            "tests/graph/test_check.py::test_a_needle_can_be_stitched_on_after_a_refusal",
        ),
    },
    "knot 1": {
        "a graph without external boundary and remotes is refused": (
            "tests/graph/test_check.py::test_a_graph_of_internal_nodes_only",
            "tests/graph/test_check.py::test_a_graph_of_nothing",
        ),
        "remotes alone are enough": ("tests/graph/test_check.py::test_remote_targets_are_boundary_enough",),
    },
    "knot 2": {
        "a second external node is refused": ("tests/graph/test_check.py::test_two_external_nodes",),
    },
    "knot 3": {
        "inputs that lead back to their own target are refused": (
            "tests/graph/test_loops.py::test_inputs_that_lead_back",
            "tests/graph/test_loops.py::test_a_target_stitched_to_itself",
        ),
        "so are outputs that do": ("tests/graph/test_loops.py::test_outputs_that_lead_back",),
        "the message spells the cycle, and nothing else": (
            "tests/graph/test_loops.py::test_inputs_that_lead_back",
            "tests/graph/test_loops.py::test_a_loop_behind_and_in_front_of_other_nodes_is_spelled_alone",
        ),
        "a path through the boundary is no loop": (
            "tests/graph/test_loops.py::test_a_path_through_the_external_boundary_is_no_loop",
        ),
        "differs: looking for loops is linear, and recurses nowhere": (
            "tests/graph/test_loops.py::test_a_ladder_of_diamonds_takes_work_in_proportion",
            "tests/graph/test_loops.py::test_a_chain_of_100_000_functions_knots_and_runs_without_recursion",
            "tests/graph/test_loops.py::test_a_long_loop_is_found_without_recursion",
        ),
    },
    "knot 4": {
        "differs: a name that is no submodule is refused with the nearest ones": (
            "tests/graph/test_ports.py::test_an_unknown_name_is_answered_with_the_nearest",
            "tests/graph/test_ports.py::test_an_unknown_name_like_no_other_is_answered_with_what_there_is",
            "tests/graph/test_ports.py::test_an_unknown_name_is_refused_for_every_use",
        ),
        "differs: a port of the wrong direction is refused": (
            "tests/graph/test_check.py::test_sources",
            "tests/graph/test_check.py::test_destinations",
        ),
        "differs: a remote of several peers is no source": (
            "tests/graph/test_check.py::test_a_value_comes_from_one_peer",
        ),
        "differs: ports inside a submodule that never runs are refused, captured or overridden": (
            "tests/graph/test_ports.py::test_a_port_inside_what_never_runs",
            "tests/passage/test_skipping.py::test_what_a_skipped_submodule_could_never_do_is_refused_at_the_knot",
            "tests/graph/test_ports.py::test_a_contradiction_by_another_name_is_one",
        ),
        "differs: an override of the input of a submodule that never runs is refused": (
            "tests/graph/test_ports.py::test_an_input_of_what_never_runs",
            "tests/graph/test_ports.py::test_a_module_whose_own_output_is_overridden_has_no_use_for_its_input",
        ),
        "where some call runs, neither is": (
            "tests/passage/test_skipping.py::test_where_some_calls_run_the_inside_can_be_stitched",
        ),
        "differs: modules that nobody calls are refused": (
            "tests/graph/test_ports.py::test_containers_are_refused",
            "tests/passage/test_kinds_of_module.py::test_containers_are_never_called_and_refused",
        ),
        "differs: what is inside a ScriptModule is refused": (
            "tests/graph/test_ports.py::test_inside_a_script_module_nothing_can_be_stitched",
            "tests/passage/test_kinds_of_module.py::test_scripted_submodule_inside_is_refused_with_the_reason",
        ),
    },
    "knot 5": {
        "the external boundary is one object, pickled and copied too": (
            "tests/graph/test_targets.py::test_the_external_boundary_is_one_object",
            "tests/test_copies.py::test_the_boundary_of_a_copy_is_the_external_target",
        ),
        "an instance of a subclass is another one": (
            "tests/graph/test_targets.py::test_a_subclass_has_an_object_of_its_own",
            "tests/graph/test_check.py::test_two_external_nodes",
        ),
    },
    "knot 6": {
        "targets may share a name, and node ids tell them apart": (
            "tests/graph/test_targets.py::test_node_ids",
            "tests/graph/test_plan.py::test_node_ids_are_unique_and_the_first_of_a_name_keeps_it",
        ),
        "messages say the ids": (
            "tests/graph/test_loops.py::test_nodes_of_one_name_are_told_apart",
            "tests/engine/test_node_errors.py::test_the_note_names_the_node_what_fed_it_and_the_run",
        ),
        "state_dict keys do": (
            "tests/test_behaviour_gaps.py::test_keys_of_the_second_node_of_a_name_begin_with_its_id",
            "tests/test_module_duties.py::test_keys_are_node_ids_and_paths",
        ),
    },
    "knot 7": {
        "two remotes of one key, peer and direction are refused": (
            "tests/graph/test_check.py::test_two_targets_with_one_key_towards_one_peer",
            "tests/graph/test_check.py::test_two_targets_that_receive_one_key",
        ),
        "other keys, peers, groups and directions are not": (
            "tests/graph/test_check.py::test_other_keys_peers_and_groups_are_others",
            "tests/graph/test_check.py::test_one_key_in_both_directions_is_two_things",
        ),
        "several stitches meet on one remote's key": (
            "tests/graph/test_check.py::test_several_stitches_meet_on_one_targets_key",
        ),
    },
    "knot 8": {
        "differs: stitching on changes only what the needle knots next": (
            "tests/test_needle.py::test_stitching_on_changes_only_what_is_knotted_next",
            "tests/test_needle.py::test_changing_a_port_after_the_knot_changes_nothing",
            "tests/test_needle.py::test_one_needle_knots_several",
        ),
    },
    "knot 9": {
        "a node that can never fire raises an exception of the run's family": (
            "tests/plugins/test_third_party.py::test_a_port_that_was_not_delivered_is_found_out",
            "tests/test_core_api.py::test_exceptions",
        ),
    },
}
