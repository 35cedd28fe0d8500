"""What the view's Train asks: trainings on this machine, by the same commands that people type."""
