"""From counts to estimates, gaps and verdicts; what changed, and what is waived."""
