"""The intermediate representation: typed values, graphs, modules, their text form and their invariants.  No TensorFlow here."""
