"""The recipe of the model that ships: corpus, tokenizer, training.

``python -m scripts.bundled_model`` trains from random weights, into the package.
"""
