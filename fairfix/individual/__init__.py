"""What a person would get who differs in nothing but what must not count."""
