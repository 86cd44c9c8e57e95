"""The main job: its parts on a tiny encoder of random weights, and the whole of it, cut short, on the real one."""
