"""What to schedule next: policies as one decision core, standard library only."""
