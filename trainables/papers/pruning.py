"""Papers of methods that prune, of adversarial training and of attacks."""

from bitfront.trainables.papers.base import PAPERS, Paper

PAPERS.register(
    Paper(
        name="edge-popup",
        title="What's Hidden in a Randomly Weighted Neural Network?",
        authors="V. Ramanujan et al.",
        venue="CVPR",
        year=2020,
        link="https://arxiv.org/abs/1911.13299",
        short="edge-popup",
    )
)
PAPERS.register(
    Paper(
        name="at",
        title="Towards Deep Learning Models Resistant to Adversarial Attacks",
        authors="A. Madry et al.",
        venue="ICLR",
        year=2018,
        link="https://arxiv.org/abs/1706.06083",
        short="adversarial training",
    )
)
PAPERS.register(
    Paper(
        name="trades",
        title="Theoretically Principled Trade-off between Robustness and Accuracy",
        authors="H. Zhang et al.",
        venue="ICML",
        year=2019,
        link="https://arxiv.org/abs/1901.08573",
        short="TRADES",
    )
)
PAPERS.register(
    Paper(
        name="flyingbird",
        title="Sparsity Winning Twice: Better Robust Generalization from More Efficient Training",
        authors="T. Chen et al.",
        venue="ICLR",
        year=2022,
        link="https://arxiv.org/abs/2202.09844",
        short="FlyingBird",
    )
)
PAPERS.register(
    Paper(
        name="bcs",
        title="Training Adversarially Robust Sparse Networks via Bayesian Connectivity Sampling",
        authors="O. Özdenizci, R. Legenstein",
        venue="ICML",
        year=2021,
        link="https://proceedings.mlr.press/v139/ozdenizci21a.html",
        short="BCS",
    )
)
PAPERS.register(
    Paper(
        name="rst",
        title=(
            "Drawing Robust Scratch Tickets: Subnetworks with Inborn Robustness Are Found "
            "within Randomly Initialized Networks"
        ),
        authors="Y. Fu et al.",
        venue="NeurIPS",
        year=2021,
        link="https://arxiv.org/abs/2110.14068",
        short="RST",
    )
)
PAPERS.register(
    Paper(
        name="hydra",
        title="HYDRA: Pruning Adversarially Robust Neural Networks",
        authors="V. Sehwag et al.",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2002.10509",
        short="HYDRA",
    )
)
PAPERS.register(
    Paper(
        name="atmc",
        title="Model Compression with Adversarial Robustness: A Unified Optimization Framework",
        authors="S. Gui et al.",
        venue="NeurIPS",
        year=2019,
        link="https://arxiv.org/abs/1902.03538",
        short="ATMC",
    )
)
PAPERS.register(
    Paper(
        name="atta",
        title="Efficient Adversarial Training with Transferable Adversarial Examples",
        authors="H. Zheng et al.",
        venue="CVPR",
        year=2020,
        link="https://arxiv.org/abs/1912.11969",
        short="ATTA",
    )
)
PAPERS.register(
    Paper(
        name="autoattack",
        title=(
            "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse "
            "Parameter-free Attacks"
        ),
        authors="F. Croce, M. Hein",
        venue="ICML",
        year=2020,
        link="https://arxiv.org/abs/2003.01690",
        short="AutoAttack",
    )
)
PAPERS.register(
    Paper(
        name="slimming",
        title="Learning Efficient Convolutional Networks through Network Slimming",
        authors="Z. Liu et al.",
        venue="ICCV",
        year=2017,
        link="https://arxiv.org/abs/1708.06519",
        short="network slimming",
    )
)
