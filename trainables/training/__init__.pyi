from .checkpoints import load_state as load_state
from .checkpoints import save_state as save_state
from .loop import Training as Training
from .network import device_from_resources as device_from_resources
from .parts import search_data as search_data
from .pictures import pictures_of as pictures_of
from .pretraining import PretrainedCache as PretrainedCache
