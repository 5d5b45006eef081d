"""Where rows come from, and how they become additive counts."""
