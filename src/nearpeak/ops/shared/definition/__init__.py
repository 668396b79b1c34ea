"""The parts of an operator definition: rules of work, references, tolerances."""
