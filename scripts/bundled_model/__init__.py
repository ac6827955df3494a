"""The recipe of the model that ships with the project: corpus, tokenizer, training, checks.

python -m scripts.bundled_model          trains from random weights into llamagym_tui/bundled_model/
python -m scripts.bundled_model --check  measures the model in that folder
"""
