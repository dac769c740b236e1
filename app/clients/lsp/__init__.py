"""The language server that `polydraft lsp` runs: drafts of the drafting server, for editors.

server.py       the features of the protocol
settings.py     the settings that an editor may send
text.py         the documents of the editor
places.py       the places of a text that get drafts: prose, or comments of a programming language
connection.py   finds or starts the drafting server, and sends it requests
child.py        a drafting server that ends with this process
picked.py       accepted drafts, from which stores learn
"""
