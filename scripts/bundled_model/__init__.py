"""The recipe of the model that ships with the project: corpus, tokenizer, training, checks.

python -m scripts.bundled_model                              trains from random weights, into the package
python -m scripts.bundled_model --no-blackjack --out FOLDER  trains the control
python -m scripts.bundled_model --check                      measures the model in the package
"""
