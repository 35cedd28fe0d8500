"""From a time or a depth to a whole plan: the scaling rule, and a pilot run."""
