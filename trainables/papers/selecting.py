"""Papers of selectors, and of the networks that they are compared on."""

from bitfront.trainables.papers.base import PAPERS, Paper

PAPERS.register(
    Paper(
        name="hawq-v2",
        title="HAWQ-V2: Hessian Aware trace-Weighted Quantization of Neural Networks",
        authors="Z. Dong et al.",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/1911.03852",
        short="HAWQ-V2",
    )
)
PAPERS.register(
    Paper(
        name="clado",
        title="Mixed-Precision Quantization for Deep Vision Models with Integer Quadratic "
        "Programming",
        authors="Z. Deng, S. Sharify, X. Wang, M. Orshansky",
        venue="DAC",
        year=2025,
        link="https://arxiv.org/abs/2307.05657",
        short="CLADO",
    )
)
PAPERS.register(
    Paper(
        name="bnas",
        title="Learning Architectures for Binary Networks",
        authors="D. Kim, K. P. Singh, J. Choi",
        venue="ECCV",
        year=2020,
        link="https://arxiv.org/abs/2002.06963",
        short="BNAS",
    )
)
PAPERS.register(
    Paper(
        name="siamfc",
        title="Fully-Convolutional Siamese Networks for Object Tracking",
        authors="L. Bertinetto et al.",
        venue="",
        year=2016,
        link="https://arxiv.org/abs/1606.09549",
        short="SiamFC",
    )
)
