"""The storm: many rows through several real workers, everything around them broken on purpose, then an audit."""
