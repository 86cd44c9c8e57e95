"""What a graph is: targets, ports, stitches, checks and the plan. No torch calls, no event loop."""
