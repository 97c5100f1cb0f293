"""One module for each kind of lock store; ``lockctl.registry`` maps URL schemes to them."""
