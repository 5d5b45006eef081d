"""Individual fairness: decisions for people who differ only in what must not count."""
