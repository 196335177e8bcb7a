"""The five papers that are implemented as whole studies (docs/methods.md 0)."""

from bitfront.trainables.papers.base import PAPERS, Paper

PAPERS.register(
    Paper(
        name="pcpp",
        title=(
            "Understanding Neural Network Binarization with Forward and Backward Proximal "
            "Quantizers"
        ),
        authors="Y. Lu, Y. Yu, X. Li, V. Partovi Nia",
        venue="NeurIPS",
        year=2023,
        link="https://arxiv.org/abs/2402.17710",
        short="ProxConnect++",
    )
)
PAPERS.register(
    Paper(
        name="bayesbinn",
        title="Training Binary Neural Networks using the Bayesian Learning Rule",
        authors="X. Meng, R. Bachmann, M. E. Khan",
        venue="ICML",
        year=2020,
        link="https://arxiv.org/abs/2002.10778",
        short="BayesBiNN",
    )
)
PAPERS.register(
    Paper(
        name="bnew",
        title="Training Binarized Neural Networks the Easy Way",
        authors="A. J. Paren, R. P. K. Poudel",
        venue="BMVC",
        year=2022,
        link="https://bmvc2022.mpi-inf.mpg.de/35/",
        short="BNEW",
    )
)
PAPERS.register(
    Paper(
        name="mixbin",
        title="Partial Binarization of Neural Networks for Budget-Aware Efficient Learning",
        authors="U. Bamba, N. Anand, S. Aggarwal, D. K. Prasad, D. K. Gupta",
        venue="WACV",
        year=2024,
        link=(
            "https://openaccess.thecvf.com/content/WACV2024/html/"
            "Bamba_Partial_Binarization_of_Neural_Networks_for_Budget-Aware_Efficie"
            "nt_Learning_WACV_2024_paper.html"
        ),
        short="MixBin",
    )
)
PAPERS.register(
    Paper(
        name="robust-binary",
        title="Robust Binary Models by Pruning Randomly-initialized Networks",
        authors="C. Liu, Z. Zhao, S. Süsstrunk, M. Salzmann",
        venue="NeurIPS",
        year=2022,
        link="https://arxiv.org/abs/2202.01341",
        short="robust binary models",
    )
)
