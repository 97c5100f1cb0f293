"""One package for each technology that keeps what lockctl writes."""
