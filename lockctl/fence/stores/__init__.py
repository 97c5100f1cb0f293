"""Where marks can be kept, one module for each kind of store, loaded when it is opened."""
