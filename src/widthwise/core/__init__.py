"""Ground floor: records of a round, registry, random streams, errors, parameter arithmetic."""
