"""Plans of a training for a given time or depth: the scaling rule and a pilot run."""
