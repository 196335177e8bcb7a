"""Data of the user's own: what a function of theirs returns, arrays that Python handed over, and
Hugging Face datasets on disk. Looked at once, when a search is settled; the name of the dataset
then says everything that costs, kinds of task and packed files need to know."""
