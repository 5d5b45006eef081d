"""Promises: sentences that fairfix prints, held against worlds whose truth is known."""
