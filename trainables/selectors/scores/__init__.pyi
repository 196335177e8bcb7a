from .channels import channel_scales as channel_scales
from .channels import channels_within as channels_within
from .curvature import hawq_scores as hawq_scores
from .curvature import second_moment_scores as second_moment_scores
from .pairs import pair_losses as pair_losses
from .relaxation import full_precision_preference as full_precision_preference
from .scoring import Scoring as Scoring
from .scoring import run as run
