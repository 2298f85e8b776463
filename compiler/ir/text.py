"""The text form of a module, and its file.

    text = print_module(module);  equal(parse_module(text, stores=module.stores), module)
    write_module(module, path);   read_module(path)

`text_parse.py` has the grammar.
"""

from __future__ import annotations

from compiler.ir.equal import equal, equal_graphs
from compiler.ir.text_file import read_document, read_module, write_module
from compiler.ir.text_parse import parse_document, parse_module, parse_type
from compiler.ir.text_print import attr_text, literal_text, print_document, print_graph, print_module, print_node

__all__ = [
    "attr_text", "equal", "equal_graphs", "literal_text", "parse_document", "parse_module", "parse_type", "print_document", "print_graph",
    "print_module", "print_node", "read_document", "read_module", "write_module",
]  # fmt: skip
