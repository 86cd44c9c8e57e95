"""What can be added to weave: hook specifications, the records that hooks return, and the protocols behind them."""
