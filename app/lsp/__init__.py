"""The language server that `polydraft lsp` runs: drafts of the drafting server, for editors.

server.py       the features of the protocol, and what each answers
settings.py     the settings that an editor may send
places.py       where in a text drafts are wanted: prose, or comments of a programming language
connection.py   the drafting server: found, or started, and asked
child.py        a drafting server that ends with this process
picked.py       accepted drafts, which teach the stores that learn
"""
